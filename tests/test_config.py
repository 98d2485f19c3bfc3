import pytest

from vit import ViTConfig


def test_derived_sizes_of_the_default_model():
    config = ViTConfig()
    assert (config.grid_size, config.num_patches, config.num_tokens) == (8, 64, 65)
    assert (config.patch_dim, config.head_dim, config.mlp_dim) == (48, 32, 512)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"patch_size": 5}, "1, 2, 4, 8, 16, 32"),
        ({"embed_dim": 130}, "1, 2, 5, 10, 13, 26, 65, 130"),
        ({"num_heads": 3}, "num_heads 3 does not divide embed_dim 128"),
        ({"depth": 0}, "depth must be a whole number of at least 1"),
        ({"image_size": 32.0}, "image_size must be a whole number"),
        ({"num_classes": True}, "num_classes"),
        ({"in_chans": -1}, "in_chans"),
        ({"mlp_ratio": 0}, "mlp_ratio must be a number above 0"),
        ({"mlp_ratio": float("nan")}, "mlp_ratio"),
        ({"mlp_ratio": 0.001}, "at least 0.007812"),
        ({"norm_eps": "small"}, "norm_eps"),
        ({"qkv_bias": 1}, "qkv_bias must be true or false"),
    ],
)
def test_what_does_not_fit_is_named_with_values_that_would(changes, says):
    with pytest.raises(ValueError, match=says):
        ViTConfig(**changes)


def test_patch_as_large_as_the_picture_fits():
    assert ViTConfig(image_size=6, patch_size=6).num_tokens == 2


def test_dict_round_trip_and_unknown_settings():
    config = ViTConfig(image_size=28, patch_size=7, in_chans=1, qkv_bias=False)
    assert ViTConfig.from_dict(config.to_dict()) == config
    with pytest.raises(ValueError, match="Unknown model settings: dropout"):
        ViTConfig.from_dict({"dropout": 0.1})
