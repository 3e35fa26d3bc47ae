"""Real servers for tests and demonstrations; public, so that users test with them too."""
