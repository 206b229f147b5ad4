"""What a user can do on the dashboard: `table` declares each action once.

Keys, footer, palette, help and documentation come from `table`. `views` opens screens, and
`run_control` changes the run; both know the dashboard as a protocol. What a command does without
the app belongs in `services`.
"""
