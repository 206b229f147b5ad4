"""Tools that no other part needs: each brings its commands by entry points.

What an action of the app needs too belongs in `services`.
"""
