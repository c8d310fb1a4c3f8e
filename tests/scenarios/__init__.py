"""Scenarios: behaviour that users of last value queues know from other brokers.

The scenarios come from the test suites and documentation of Qpid C++ (CPP, and its old version M4), ActiveMQ Artemis
(ART), Qpid Broker-J (BJ) and Kafka clients. A test's name has the scenario's number and the behaviour of this library.
Where systems differ, or this library differs from the scenario, the table and the test name the rule (R) or guarantee
(G) that decides.

=====  =======================  ======================================================================================
S      module                   rule, where systems differ
=====  =======================  ======================================================================================
S001   test_conflation.py
S001   test_standard.py        R35: on a standard queue
S001   test_ranked_browsing.py  R20: by rank, which is that of the newest value
S002   test_conflation.py
S003   test_conflation.py       R6: acquiring chooses, so a consumer that does not acquire counts as unstarted
S006   test_conflation.py
S009   test_conflation.py
S010   test_conflation.py       R6, G13: held values stay and count (as BJ, ART; CPP drops them), newer ones wait
S010   test_standard.py        R35: on a standard queue
S011   test_conflation.py       R4: tail (as CPP, BJ, ART); M4 does as ``order="in-place"``
S014   test_conflation.py
S015   test_conflation.py
S016   test_conflation.py
S018   test_keys.py             R1: both pass (CPP keeps one)
S018   test_standard.py        R35: on a standard queue
S021   test_keys.py             R1: both pass
S022   test_keys.py             R1, R2: empty text is a key, a missing header is not (as ART, BJ)
S022   test_standard.py        R35: on a standard queue
S023   test_keys.py             R2: one key (as CPP, ART Core; two in BJ)
S025   test_keys.py             R3: refused
S026   test_keys.py             R3: a switch alone has the key header of its system (as ART, CPP)
S029   test_keys.py             R3: refused (as CPP), but for groups, which go together with keys (R36; as BJ, ART)
S030   test_keys.py
S031   test_browsing.py
S031   test_standard.py        R35: on a standard queue
S031   test_ranked_browsing.py  R20: the dump by rank, updates by arrival
S032   test_browsing.py
S033   test_browsing.py
S035   test_browsing.py
S035   test_standard.py        R35: on a standard queue
S036   test_browsing.py
S037   test_browsing.py         G6: only the second run's values (M4 keeps browsed messages)
S038   test_browsing.py
S041   test_browsing.py         G9: no handles to waiting messages; acquiring chooses
S042   test_browsing.py         G2, G6: shown until acked (CPP, BJ hide held messages)
S042   test_standard.py        R35: on a standard queue
S044   test_browsing.py
S047   test_browsing.py         G6: a browser has nothing to ack
S049   test_consuming.py
S049   test_standard.py        R35: on a standard queue
S050   test_consuming.py
S050   test_standard.py        R35: on a standard queue
S054   test_consuming.py
S056   test_consuming.py        G9: two holders in one partition share a consumer
S056   test_standard.py        R35: on a standard queue
S057   test_consuming.py        R6, G13: the released old value is dropped (as CPP, BJ; ART, M4 bring it back)
S057   test_standard.py        R35: on a standard queue
S059   test_consuming.py
S060   test_consuming.py
S061   test_consuming.py
S062   test_consuming.py
S063   test_consuming.py        G3: only the last one is guaranteed
S065   test_consuming.py
S068   test_consuming.py        R13: the reader is a browser
S069   test_consuming.py        R13: the reader is a browser
S071   test_consuming.py        R6: only the newer value (both, according to the M4 documentation)
S074   test_non_destructive.py  R13: the readers are browsers
S075   test_non_destructive.py  R13: the readers are browsers
S076   test_non_destructive.py  R13: the readers are browsers
S076   test_standard.py        R35: on a standard queue
S077   test_non_destructive.py  R13: refused (as CPP; ART, BJ silently downgrade)
S079   test_transactions.py     G13: newer values wait while a transaction has the older ones
S079   test_standard.py        R35: on a standard queue
S080   test_transactions.py
S083   test_browsing.py
S085   test_browsing.py         G5: a browser's dump ends and reports hidden values; a view waits
S086   test_transactions.py     no two-phase commit; instead, an open transaction that is stored
S087   test_transactions.py     G13: the transaction has the first value only (in ART all six)
S088   test_restart.py
S088   test_standard.py        R35: on a standard queue
S090   test_restart.py
S091   test_restart.py          G14: there are no transient messages
S094   test_restart.py          G1, G8: a reopened view is rebuilt, a disconnected one resumes
S095   test_time_to_live.py
S095   test_standard.py        R35: on a standard queue
S096   test_time_to_live.py     R7, R8: nothing comes back, not even what was in flight (as CPP, BJ; unlike ART)
S097   test_time_to_live.py
S100   test_time_to_live.py
S101   test_time_to_live.py     R10: it never expires (as BJ; ART gives it the minimum)
S102   test_time_to_live.py
S103   test_time_to_live.py     R10: a definition is final (BJ applies a new maximum to what is queued)
S106   test_time_to_live.py
S108   test_management.py
S108   test_standard.py        R35: on a standard queue
S109   test_management.py       R7: a message is identified by its key
S111   test_management.py
S111   test_standard.py        R35: on a standard queue
S113   test_consuming.py
S114   test_scheduling.py
S115   test_scheduling.py       R11: the value before stays until then (as ART; BJ shows none)
S115   test_standard.py        R35: on a standard queue
S116   test_scheduling.py       R11: the scheduled one never counts (ART gives it when it is due)
S117   test_scheduling.py
S120   test_ring.py            R12: by a consumer
S121   test_ring.py            R12: conflated first (as BJ; CPP evicts an unrelated key)
S122   test_overflow.py        R12: the update is accepted (CPP and BJ refuse it)
S123   test_overflow.py
S125   test_overflow.py
S125   test_ring.py            R12: only this library's producers refuse what is too large
S128   test_overflow.py
S128   test_ring.py
S129   test_overflow.py
S131   test_grouping.py        R36: sessions are the consumers (as BJ)
S132   test_grouping.py
S133   test_grouping.py
S137   test_grouping.py        R36: no buckets, so no two groups are tied together (BJ may)
S139   test_selecting.py        R28: default filters are for browsers; R27: no consumer selects
S140   test_selecting.py        R15
S143   test_selecting.py        R15: the period ends when the browser opens; updates always come
S144   test_selecting.py        R15, R28: refused when the browser is created, or the queue declared
S145   test_selecting.py        a key and its header select the same
S146   test_selecting.py
S148   test_selecting.py
S155   test_compacted_log.py    R9: null deletes, empty is a value
S155   test_standard.py        R35: on a standard queue
S156   test_compacted_log.py
S157   test_compacted_log.py
S158   test_compacted_log.py    R14: the home partition wins, and the key is reported
S158   test_standard.py        R35: on a standard queue
S159   test_compacted_log.py    R14: a delete in the new home hides the value in the old one
S161   test_compacted_log.py
S162   test_compacted_log.py
=====  =======================  ======================================================================================
"""
