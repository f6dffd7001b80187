"""Watching agents: videos of every kind of environment, terminals, recorded evaluations."""

import io
import re
import sys

import gymnasium
import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

import discorl
from discorl.cli.__main__ import main
from discorl.envs.base import EnvironmentConfig
from discorl.envs.registry import GAMES
from discorl.envs.sources import find_environment
from discorl.errors import DiscorlError
from discorl.extras import install_line
from discorl.watching.recording import play_moments
from discorl.watching.scenes import COLOURS, EMPTY, find_board, find_scene, open_environment
from discorl.watching.terminal import show_moments

TINY = {"torso": (4,), "batch_size": 2, "num_envs": 2, "rollout_length": 4, "eval_episodes": 2}
RULE = "actor_critic:num_bins=5,max_abs_value=2"


def train(env, out, steps=2, **settings):
    return discorl.train(env, RULE, out, steps=steps, **(TINY | settings))


@pytest.fixture(scope="module")
def catch(tmp_path_factory):
    return train("catch:rows=4,columns=3", tmp_path_factory.mktemp("runs") / "catch")


def frames_of(path):
    with Image.open(path) as image:
        frames = []
        for number in range(image.n_frames):
            image.seek(number)
            frames.append(np.array(image.convert("RGB")))
        return frames, image.info


def test_the_video_shows_the_episode_that_is_played(catch):
    # Given an episode as `play` plays it
    agent = catch.agent
    for seed in range(3):
        (episode,) = discorl.play(agent, "catch:rows=4,columns=3", seed=seed)
        # When it is watched with the same seed
        video = agent.watch("catch:rows=4,columns=3", seed=seed)
        # Then it is the same, with a frame for each step and one for how it ended
        assert video.returns == [episode.total_reward]
        assert len(video) == len(episode) + 1
        assert not video.cut


@pytest.mark.parametrize("deterministic", [False, True])
def test_moments_tell_what_the_agent_makes_of_it(catch, deterministic):
    show = catch.show(deterministic)
    with show.open() as env:
        moments = list(play_moments(show.player, env, seed=5))
    assert [moment.step for moment in moments] == [0, 1, 2, 3]
    for moment in moments[:-1]:
        seen = moment.observation.numpy()
        np.testing.assert_allclose(moment.probabilities, catch.agent.probabilities(seen), atol=1e-6)
        assert moment.value is not None
        if deterministic:
            assert moment.action == moment.probabilities.argmax()
    # and on the last one the ball is in the bottom row, and nothing is done any more
    assert moments[-1].last
    assert moments[-1].observation[-1].sum() == (1 if moments[-1].reward > 0 else 2)
    assert moments[-1].observation[:-1].sum() == 0


def test_values_are_read_from_the_head_that_the_rule_trains(catch, tiny_rule, tmp_path):
    settings = TINY | {"model_size": 4, "head_hidden": 4}
    found = discorl.train("catch:rows=3,columns=3", tiny_rule, tmp_path / "d", steps=2, **settings)
    show = found.show()
    with show.open() as env:
        values = [moment.value for moment in play_moments(show.player, env, seed=0)]
    assert values[-1] is None
    assert all(np.isfinite(value) for value in values[:-1])


def test_boards_are_drawn_crisply():
    env = discorl.make_environment("cliff", 1)
    picture = find_scene(env, 240).draw(env.reset(0).observation[0])
    assert picture.shape == (4 * 48, 6 * 48, 3)
    # The middles of cells: agent, cliff, goal, nothing; and no colour but theirs and the lines'
    found = [tuple(picture[row * 48 + 24, column * 48 + 24]) for row, column in
             ((3, 0), (3, 1), (3, 5), (0, 0))]  # fmt: skip
    assert found == [*COLOURS[:3], EMPTY]
    assert {tuple(c) for c in picture.reshape(-1, 3)} == {*COLOURS[:3], EMPTY, (255, 255, 255)}


@pytest.mark.parametrize("name", sorted(GAMES))
def test_every_game_can_be_drawn_from_beginning_to_end(name):
    env = discorl.make_environment(name, 1)
    scene = find_scene(env, 64)
    first = scene.draw(env.reset(0).observation[0])
    assert first.dtype == np.uint8
    assert first.std() > 0
    names = env.action_names
    assert names is None or len(names) == env.num_actions
    step = env.reset(0)
    while not step.ended.any():
        step = env.step(torch.ones(1, dtype=torch.int64))
    shown = env.played()
    assert shown is None or scene.draw(shown[0]).shape == first.shape


def test_an_environment_that_draws_itself_is_shown_as_it_does(tmp_path):
    pytest.importorskip("pygame", reason="Gymnasium draws with pygame")
    run = train("CartPole-v1", tmp_path / "a", normalize_observations=True)
    video = run.watch(max_frames=3)
    theirs = gymnasium.make("CartPole-v1", render_mode="rgb_array")
    theirs.reset(seed=1_000_003)
    picture = Image.fromarray(theirs.render()).resize((360, 240), Image.Resampling.LANCZOS)
    np.testing.assert_array_equal(video.frames[0][10:250, 10:370], np.array(picture))
    assert video.fps == theirs.metadata["render_fps"]
    # and the agent sees normalised observations
    show = run.show()
    with show.open() as env:
        moment = next(play_moments(show.player, env, seed=3))
    expected = run.agent.probabilities(moment.observation.numpy())
    np.testing.assert_allclose(moment.probabilities, expected, atol=1e-6)


class Button(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.array([0.5, -1, 1], np.float32), {}

    def step(self, action):
        self.time += 1
        return np.array([0.5, -1, 1], np.float32), 1.0, self.time == 3, False, {}


def test_an_environment_without_pictures_gets_bars(tmp_path):
    run = train(Button(), tmp_path / "a")
    video = run.agent.watch(Button(), size=60)
    assert video.returns == [3.0]
    assert len(video) == 4
    picture = video.frames[0][:, : 10 + 80]
    colours = {tuple(colour) for colour in picture.reshape(-1, 3)}
    assert {COLOURS[0], COLOURS[1], EMPTY} <= colours  # up, down, and nothing
    with pytest.raises(DiscorlError, match="pass it again"):
        run.agent.watch()


@pytest.mark.parametrize(
    ("env", "module"), [("minatar/breakout", "minatar"), ("ALE/Pong-v5", "ale_py")]
)
def test_arcade_games_are_drawn(env, module):
    pytest.importorskip(module, reason=f"needs {module}")
    made = discorl.make_environment(env, 1)
    step = made.reset(0)
    picture = find_scene(made, 200).draw(step.observation[0])
    assert len(made.action_names) == made.num_actions
    if module == "minatar":
        assert made.action_names == ("none", "left", "right")
        assert picture.shape == (200, 200, 3)
        assert tuple(COLOURS[0]) in {tuple(colour) for colour in picture.reshape(-1, 3)}
    else:
        newest = step.observation[0, -1].numpy()
        assert picture.shape == (168, 168, 3)
        np.testing.assert_array_equal(picture[::2, ::2, 0], newest)
    made.close()


def test_atari_is_drawn_in_its_own_colours():
    pytest.importorskip("ale_py", reason="needs ale_py")
    env = "ALE/Pong-v5"
    config = EnvironmentConfig()
    made = open_environment(find_environment(env, "cpu", config), config, "cpu")
    assert made.action_names[:2] == ("noop", "fire")
    scene, step = find_scene(made, 210), made.reset(5)
    generator = torch.Generator().manual_seed(0)
    # Given some play with sticky actions, over the end of an episode
    ended = 0
    for number in range(1200):
        step = made.step(torch.randint(made.num_actions, (1,), generator=generator))
        ended += int(step.ended[0])
        if number % 100 < 97:
            continue
        # Then the picture is what the agent sees, in colour and as large as the console's
        picture = scene.draw(step.observation[0])
        assert picture.shape == (210, 160, 3)
        grey = Image.fromarray(picture).convert("L").resize((84, 84), Image.Resampling.BOX)
        difference = np.abs(np.array(grey).astype(int) - step.observation[0, -1].numpy())
        assert difference.mean() < 2
        assert np.ptp(picture.astype(int), axis=2).max() > 50
    assert ended > 0
    made.close()


def test_a_video_is_short_if_asked_to_be(catch):
    video = catch.watch(episodes=3, max_frames=5, fps=10)
    assert len(video) == 5
    assert video.cut
    assert len(video.returns) == 2
    assert "cut off" in repr(video)
    every = catch.watch(episodes=2, every=2)
    assert len(every) == 6  # steps 0, 2 and the end, twice
    with pytest.raises(DiscorlError, match="fps"):
        catch.watch(fps=0)
    with pytest.raises(DiscorlError, match="unknown setting of a video 'speed'"):
        catch.watch(speed=3)


def test_a_gif_holds_every_frame_and_is_small(catch, tmp_path):
    video = catch.watch(episodes=2, every=1)
    path = video.save(tmp_path / "a" / "b.gif")
    frames, info = frames_of(path)
    assert len(frames) == len(video)
    for frame, saved in zip(video.frames, frames, strict=True):
        # The board exactly, and the soft edges of letters nearly
        np.testing.assert_array_equal(saved[:, : 10 + 3 * 48], frame[:, : 10 + 3 * 48])
        assert np.abs(frame.astype(int) - saved).max() <= 12
    assert info["loop"] == 0
    assert path.stat().st_size < 5_000 * len(video)
    with pytest.raises(DiscorlError, match=r"ending in .gif or .mp4"):
        video.save(tmp_path / "a.avi")


def test_common_colours_of_a_gif_are_kept_exactly(tmp_path):
    # Given a frame of paper, ink and a board's colours, with every grey between them here and there
    frame = np.full((60, 60, 3), 255, np.uint8)
    frame[:4] = (np.arange(240, dtype=np.uint8) + 13).reshape(4, 60, 1)
    for row, colour in enumerate([*COLOURS, EMPTY]):
        frame[5 + 4 * row : 8 + 4 * row] = colour
    path = discorl.Video([frame, frame[::-1].copy()], [1], [0.0], 6, False).save(tmp_path / "a.gif")
    saved, _ = frames_of(path)
    np.testing.assert_array_equal(saved[0][4:], frame[4:])
    # and the others nearly: near ones are one, and are looked up in steps of four
    np.testing.assert_allclose(saved[0][:4].astype(int), frame[:4], atol=12)


def test_a_notebook_shows_it(catch):
    video = catch.watch()
    assert re.match(
        r'<img src="data:image/gif;base64,[A-Za-z0-9+/=]+" alt="Video', video._repr_html_()
    )
    with Image.open(io.BytesIO(video._repr_png_())) as image:
        np.testing.assert_array_equal(np.array(image), video.frames[-1])


def test_mp4(catch, tmp_path):
    ffmpeg = pytest.importorskip("imageio_ffmpeg", reason="needs the extra: discorl[video]")
    video = catch.watch(fps=10)
    path = video.save(tmp_path / "a.mp4")
    reader = ffmpeg.read_frames(str(path))
    about = next(reader)
    reader.close()
    assert about["size"] == (video.frames[0].shape[1], video.frames[0].shape[0])
    assert about["duration"] == pytest.approx(video.seconds, abs=0.15)


def test_what_to_install_for_mp4(catch, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert main(["watch", str(catch.folder), "--out", str(tmp_path / "a.mp4")]) == 2
    assert install_line("video") in capsys.readouterr().err


def test_the_command(catch, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = str(catch.folder)
    assert main(["watch", run, "--episodes", "2", "--greedy", "--size", "60"]) == 0
    said = capsys.readouterr().out
    assert re.match(
        r"2 episodes, mean return -?\d\.00, 8 frames, 2\.7 s in watch.gif, \d+ kB", said
    )
    assert len(frames_of("watch.gif")[0]) == 8
    # An agent in a file, one of a checkpoint, and elsewhere
    catch.agent.save("agent.safetensors")
    (newest,) = [p for p in (catch.folder / "checkpoints").iterdir() if p.name.endswith("2")]
    for args in (
        ["agent.safetensors"],
        [str(newest)],
        [run, "--checkpoint", "2"],
        ["agent.safetensors", "--env", "catch:rows=4,columns=3", "--max-frames", "2"],
    ):
        assert main(["watch", *args, "--out", "b.gif"]) == 0
    assert "cut off in b.gif" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("--out a.avi", "a.avi: expected a name ending in .gif or .mp4"),
        ("--live --out a.gif", "--live and --out: give one of them"),
        ("--live", "this is no terminal"),
        ("--env catch", "it reads observations"),
        ("--checkpoint best", "has no best agent"),
        ("--size 1", "--size: expected a number from 32 to 2000"),
    ],
)
def test_mistakes_are_told(catch, args, words, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["watch", str(catch.folder), *args.split()]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert words in err


def test_a_board_in_a_terminal(catch):
    show = catch.show()
    for colours in ("truecolor", None):
        out = io.StringIO()
        console = Console(file=out, force_terminal=True, color_system=colours, width=100)
        with show.open() as env:
            moments = play_moments(show.player, env, seed=0)
            names = env.action_names
            total = show_moments(moments, find_board(env), names, console, fps=1000)
        shown = out.getvalue()
        assert total in (-1, 1)
        assert ("48;2;0;114;178" in shown) == (colours is not None)  # the ball's cell
        assert "1 " in shown
        assert "end of the episode" in shown
        assert all(name in shown for name in ("left", "stay", "right"))


def test_where_there_is_no_board_a_video_is_made(tmp_path, monkeypatch, capsys):
    run = train("cartpole:steps=5", tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Console, "is_terminal", True)
    assert main(["watch", str(run.folder), "--live"]) == 0
    out = capsys.readouterr().out
    assert "cartpole:steps=5 has no board to show in a terminal" in out
    assert (tmp_path / "watch.gif").exists()


def test_evaluations_are_recorded(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    settings = {"eval_every": 2, "record_evaluations": True}
    run = train("catch:rows=4,columns=3", tmp_path / "a", steps=5, **settings)
    names = sorted(path.name for path in (tmp_path / "a" / "videos").iterdir())
    assert names == ["step_00000002.gif", "step_00000004.gif", "step_00000005.gif"]
    # The last one is the agent that came out, at the first of its evaluation's episodes
    video = (tmp_path / "a" / "videos" / names[-1]).read_bytes()
    assert video == run.watch().gif
    events = EventAccumulator(str(tmp_path / "a" / "tensorboard"))
    events.Reload()
    images = events.Images("eval/episode")
    assert [image.step for image in images] == [2, 4, 5]
    assert images[-1].encoded_image_string == video
    # and the run is the same as one that records nothing
    plain = train("catch:rows=4,columns=3", tmp_path / "b", steps=5, eval_every=2)
    assert plain["eval_return_sampled"] == run["eval_return_sampled"]
    for name, parameter in plain.agent.params.items():
        assert (parameter == run.agent.params[name]).all()


def test_a_video_that_cannot_be_made_does_not_end_a_run(tmp_path, monkeypatch):
    def fails(*_):
        raise DiscorlError("no camera")

    monkeypatch.setattr("discorl.watching.recording.find_scene", fails)
    run = train("catch:rows=4,columns=3", tmp_path / "a", record_evaluations=True)
    assert "eval_return_sampled" in run
    assert not (tmp_path / "a" / "videos").exists()


def test_a_folder_of_seeds_asks_for_one_of_them(catch, capsys):
    folder = catch.folder.parent
    assert main(["watch", str(folder)]) == 2
    said = f"name one of the 1 in it, for instance {catch.folder}"
    assert said in capsys.readouterr().err.replace("\n", " ")
