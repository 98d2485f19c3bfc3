"""The view in the URL: it comes back as it was, and nonsense in it does no harm."""

from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from ui.state import View
from vit import ViTConfig

SOME = View("frog", "0.2,0.3,0.5", "runs/mine", 3, 1, 2, 40)


def script() -> None:
    import streamlit as st

    from ui import state

    view = state.read()
    st.session_state["view"] = view
    st.number_input("token", 0, 64, **state.bound("token", view.token))
    st.selectbox(
        "epoch",
        ["kept", 1, 2],
        **state.bound(
            "epoch",
            "kept" if view.epoch is None else view.epoch,
            to_view=lambda chosen: None if chosen == "kept" else chosen,
        ),
    )
    st.button("many", on_click=state.update, kwargs={"token": 0, "layer": 4, "img": "dog"})


def opened(**query: Any) -> AppTest:
    app = AppTest.from_function(script)
    for name, value in query.items():
        app.query_params[name] = value
    return app.run()


def address(app: AppTest) -> dict[str, str]:
    """AppTest keeps some values as they are and some as lists."""
    return {k: v if isinstance(v, str) else v[-1] for k, v in app.query_params.items()}


def test_a_view_comes_back_from_its_query() -> None:
    assert opened(**SOME.to_query()).session_state["view"] == SOME


def test_a_fresh_visitors_address_stays_bare() -> None:
    app = opened()
    assert (app.session_state["view"], address(app)) == (View(), {})
    assert View().to_query() == {}


@pytest.mark.parametrize("text", ["-1", "1.5", "²", "٣", "", "1e3", "999999999", "<script>", " 1"])
def test_nonsense_falls_back_to_the_default(text: str) -> None:
    view = opened(token=text, layer=text, epoch=text, img="").session_state["view"]
    assert view == View()


def test_indices_that_the_model_lacks_become_0() -> None:
    config = ViTConfig(image_size=8, patch_size=4, depth=2, num_heads=2)  # 5 tokens
    assert View(layer=1, head=1, token=4).fitted(config) == View(layer=1, head=1, token=4)
    assert View(layer=2, head=2, token=5, epoch=7).fitted(config) == View(epoch=7)


def test_a_widget_shows_the_address_and_writes_to_it() -> None:
    app = opened(token="7", layer="3")
    assert app.number_input[0].value == 7
    app.number_input[0].set_value(9).run()
    assert address(app) == {"token": "9", "layer": "3"}
    assert app.session_state["view"] == View(token=9, layer=3)
    app.number_input[0].set_value(0).run()  # the default needs no place in the address
    assert address(app) == {"layer": "3"}


def test_a_widget_may_speak_another_language() -> None:
    app = opened(epoch="2")
    assert app.selectbox[0].value == 2
    app.selectbox[0].set_value("kept").run()
    assert address(app) == {}
    app.selectbox[0].set_value(1).run()
    assert app.session_state["view"] == View(epoch=1)


def test_an_update_leaves_what_is_not_its_own() -> None:
    app = opened(token="5", other="kept", img="frog")
    app.button[0].click().run()
    assert address(app) == {"other": "kept", "img": "dog", "layer": "4"}


def test_an_update_is_one_step_for_the_browsers_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamlit.runtime.state.query_params import QueryParams

    sent, send = [], QueryParams._send_query_param_msg
    monkeypatch.setattr(
        QueryParams, "_send_query_param_msg", lambda self: sent.append(1) or send(self)
    )
    app = opened(token="5", img="frog")
    app.button[0].click().run()  # sets two, removes one
    assert sent == [1]
    app.button[0].click().run()  # changes nothing
    assert sent == [1]
