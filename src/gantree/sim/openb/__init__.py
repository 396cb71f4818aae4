"""Replays how a GPU cluster fills up: Alibaba's openb lists by the procedure of FGD (USENIX ATC'23).

Pods arrive one by one in a given order, take a place or are dropped, and never leave. What is measured is how much of
the cluster's GPUs is allocated when 90, 100, ... 130 % of them have been asked for.

lists      nodes, pods, arrival orders and tie-breaks from CSV
room       what is left on each node, and which nodes have room for a pod
policies   how a node and a GPU are chosen: the protocol, random and best fit
fgd        fragmentation gradient descent, as published
least_loss the policy `gantree`: the score of `gantree.placement.scoring.packing`
replay     the loop, and what came out
bound      what no policy can exceed
"""
