"""What runs inside the job: the supervisor, its phases and metrics."""
