"""The intermediate representation: ops of the `pw` dialect, programs made of them, and the rules of each phase."""
