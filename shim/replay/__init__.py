"""Replay: a rank does a piece of its work again, on inputs that all its peers have, and signs what comes out.

``recipes`` says what can be replayed, ``catalog`` finds it in a model, ``learning`` looks at one real call of
it (``call``), ``cadence`` says when it is due, ``trial`` does it twice: on a private ``twin`` of the block
(``blockrun``) or on a slice of the optimizer's state (``slicerun``), in surroundings of its own
(``ambience``) and with inputs from a counter (``seeds``) that are as large as real ones (``scale``).
``evidence`` writes the results where the agent reads them, ``channel`` brings what peers must agree on
through the trainer's store, and ``replays`` ties all together.

On demand real inputs are replayed as well: ``capture`` takes those of a group's first rank, ``broadcast``
brings them to its peers and all to the same step, ``sharing`` says which and when.

The trainer's own modules, random generators, gradients and groups are read, never written, and never called.
Reference: SCOUT §3, design §6, docs/decisions/0008.
"""
