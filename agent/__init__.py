"""The pure core of scoutd: what is decided, and nothing else.

Standard library only. No I/O, no clock, no threads, no logging: time is an argument, the outside world is
events in and effects out (``Core.step``). Read ``evidence`` (what is known), ``localize`` (what follows
from it), ``silence`` (when it is an alarm), ``core`` (how a verdict lives), in this order.
"""
