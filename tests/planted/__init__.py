"""Small bugs, planted one after another, to see which tests notice them.

In `bugs/`, each is a table of a TOML file. A bug belongs here that a reviewer could overlook. None
of them stops the app, or the collection of tests.
"""
