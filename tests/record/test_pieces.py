"""Calls that are pieces of one attention are known by their memory, and nothing else is taken for one."""

from __future__ import annotations

import torch

from regard.record.pieces import Place, document_ids, runs_of

WHOLE = torch.zeros(1, 2, 9, 4)


def runs(names: str, tensors: list[torch.Tensor], whole: list[bool] | None = None) -> list[list[int]]:
    places = [Place.of(tensor) for tensor in tensors]
    return [list(run) for run in runs_of(list(names), places, whole or [False] * len(names))]


def test_parts_that_follow_one_another_in_memory_belong_together() -> None:
    assert runs("aaa", list(WHOLE.split([2, 3, 4], dim=2))) == [[0, 1, 2]]


def test_calls_of_a_module_with_tensors_of_their_own_stay_apart() -> None:
    assert runs("aa", [WHOLE, WHOLE.clone()]) == [[0], [1]]


def test_another_module_ends_what_belongs_together() -> None:
    parts = list(WHOLE.split(3, dim=2))
    assert runs("aba", parts) == [[0], [1], [2]]
    assert runs("aabb", [*parts[:2], *WHOLE.clone().split([4, 5], dim=2)]) == [[0, 1], [2, 3]]


def test_a_masked_call_is_no_piece() -> None:
    assert runs("aaa", list(WHOLE.split(3, dim=2)), [False, True, False]) == [[0], [1], [2]]


def test_a_part_that_comes_again_begins_anew() -> None:
    first, second = WHOLE.split([4, 5], dim=2)
    assert runs("aaa", [first, second, first]) == [[0, 1], [2]]


def test_every_position_has_the_number_of_its_piece() -> None:
    assert document_ids([2, 1, 3]).tolist() == [0, 0, 1, 2, 2, 2]
