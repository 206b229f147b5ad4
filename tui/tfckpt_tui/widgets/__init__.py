"""Parts of screens; they show what a snapshot says and hold no truth of their own."""
