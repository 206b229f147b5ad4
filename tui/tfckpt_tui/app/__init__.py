"""The terminal app: the app classes, actions, palette and themes.

What an action does to a run belongs in `services`.
"""
