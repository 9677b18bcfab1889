"""Predicts the times of a run of a plan on machines that one may not own.

`work.py` lists the tasks of the plan, `durations.py` estimates the time of each, `engine.py` runs them as discrete
events, `step.py` sums up the result, and `figures.py` prints it. `estimate.py` fills the gaps of a large sweep.
"""
