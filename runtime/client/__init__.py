"""What a client holds: loaded plans, their inputs and results, and arrays that it puts aside."""
