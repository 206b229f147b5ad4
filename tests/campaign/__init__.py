"""A fault campaign: seeded faults in each area of the product, judged without its code.

    python -m tests.campaign [--budget 10m] [--seed N] [--only AREA] [--case CASE] [--json FILE]

What checks a run after a fault belongs in `ledger`, which imports nothing of the product.
"""
