"""Messages to people: what they say, whom they reach, and whether they were taken."""
