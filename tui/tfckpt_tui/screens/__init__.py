"""Full-screen views and dialogs."""
