"""`slurmwrapd agent`: reads the cards of one node and sends what they say."""
