"""Plans that need both policy and placement: reservations, preemption, defragmentation, elasticity, cells."""
