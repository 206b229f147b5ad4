"""One class per action: its key, footer text, palette entry, help and headless form."""
