"""Full-screen views.

Questions to the user belong in `app.dialogs`, reusable parts in `app.widgets`.
"""
