"""The residual contract: what each unit adds to what, in the names of the user's own modules."""

from skipscope.trace.contract.assertion import contract_of
from skipscope.trace.contract.places import Contract, HookPlace, HookStep, Summand, UnitContract

__all__ = ["Contract", "HookPlace", "HookStep", "Summand", "UnitContract", "contract_of"]
