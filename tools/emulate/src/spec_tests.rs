//! Tests of the spec: what the text says is what the pipes get, and mistakes are named.

use super::*;

const TWO_RAILS: &str = r#"
name = "two-rails"
hosts = 3
seed = 7
control = true

[link]
rate = "1g"
queue = "64p"

[[network]]
name = "net1"
link = { delay = "1ms", up = { loss = "0.5%" } }

[network.host.host2]
delay = "10ms"
down = { loss = "2%", burst = 4 }

[[network]]
name = "net2"
mtu = 9000
subnet = "192.168.9.0"

[[event]]
at = "2s"
action = "cut"
host = "host2"
network = "net1"

[[event]]
at = "3s"
action = "set"
host = "host1"
network = "net2"
set = { loss = "1%" }
"#;

#[test]
fn settings_reach_their_pipes() {
    let spec = Spec::from_toml(TWO_RAILS).unwrap();
    let (up, down) = spec.pipes(0, 0).unwrap();
    assert_eq!(up.rate_bytes_per_s, 125_000_000);
    assert_eq!(up.queue.packets, Some(DEFAULT_QUEUE_PACKETS), "the flat queue is the switch port's");
    assert_eq!((up.delay_ns, up.loss), (0, Loss::independent(Chance::of(0.005))));
    assert_eq!(down.queue.packets, Some(64));
    assert_eq!((down.delay_ns, down.loss), (1_000_000, Loss::NONE));
    let (_, down) = spec.pipes(0, 1).unwrap();
    assert_eq!(down.delay_ns, 10_000_000);
    assert!((down.loss.mean() - 0.02).abs() < 1e-12);
    assert_eq!(down.loss.burst.map(|b| b.to_good), Some(Chance::of(0.25)));
    assert_eq!(spec.ipv4(1, 2), Ipv4Addr::new(192, 168, 9, 3));
    assert_eq!(spec.events[0].direction, Direction::Usual);
    assert_eq!(spec.events[1].direction, Direction::Usual);
}

#[test]
fn mistakes_are_named() {
    for (text, word) in [
        ("hosts = 0", "0 hosts"),
        ("hosts = 300", "hosts"),
        ("hosts = 2\nspeed = 3", "speed"),
        ("hosts = 2\n[link]\nrat = \"1g\"", "rat"),
        ("hosts = 2\n[link]\nup = { lass = 1 }", "lass"),
        ("hosts = 2\n[link]\nrate = \"1x\"", "1x"),
        ("hosts = 2\n[link]\nloss = 2", "100%"),
        ("hosts = 2\n[link]\nburst = 2", "burst"),
        ("hosts = 2\n[[network]]\nname = \"A b\"", "A b"),
        ("hosts = [\"a\", \"a\"]", "twice"),
        ("hosts = 2\n[[network]]\nname = \"n\"\nmtu = 5", "mtu"),
        ("hosts = 2\n[[network]]\nname = \"n\"\n[network.host.nobody]\nloss = 0.1", "nobody"),
        ("hosts = 2\n[[event]]\nat = \"1s\"\naction = \"cut\"\nhost = \"host9\"\nnetwork = \"net1\"", "host9"),
        ("hosts = 2\n[[event]]\nat = \"1s\"\naction = \"burn\"\nhost = \"host1\"\nnetwork = \"net1\"", "burn"),
        ("hosts = 2\nplain = true\n[link]\ndelay = \"1ms\"", "plain"),
        ("hosts = 2\nnft_loss = \"1%\"", "plain"),
    ] {
        let error = Spec::from_toml(text).expect_err(text).to_string();
        assert!(error.contains(word), "{text:?} gives {error:?}, which does not name {word:?}");
    }
}

#[test]
fn a_mistake_is_told_in_one_line_with_its_place() {
    for (text, told) in [
        (
            "hosts = 2\n[link]\nrate = \"1g\"\nloss = \"200%\"",
            "spec: line 4: link.loss: probability '200%' is above 100%",
        ),
        ("hosts = 2\n[link]\nup = { loss = \"200%\" }", "spec: line 3: link.up.loss: probability"),
        ("hosts = 2\nseed = ", "line 2: "),
        ("hosts = 2\n\nspeed = 3", "line 3: unknown field `speed`"),
        ("hosts = 2\n[link]\n\nrat = \"1g\"", "spec: line 4: link: unknown field `rat`"),
    ] {
        let error = Spec::from_toml(text).expect_err(text).to_string();
        assert!(error.contains(told) && error.lines().count() == 1, "{text:?} gives {error:?}");
    }
}

#[test]
fn a_wrong_value_is_told_with_its_line_its_key_and_what_is_expected() {
    let network = |lines: &str| format!("hosts = 2\n[[network]]\nname = \"n\"\nmtu = 1500\n{lines}");
    for (text, told) in [
        (
            "seed = 1\nhosts = true".to_owned(),
            "line 2: hosts: invalid type: boolean `true`, expected a number of hosts",
        ),
        (
            "hosts = \"4\"".into(),
            "line 1: hosts: invalid type: string \"4\", expected a number of hosts from 1 to 250, or a list",
        ),
        ("hosts = -1".into(), "line 1: hosts: -1 hosts; from 1 to 250 are possible"),
        (
            "hosts = 2\nplain = true\nnft_loss = true".into(),
            "line 3: nft_loss: invalid type: boolean `true`, expected a probability",
        ),
        (
            network("[network.link]\nrate = \"1g\"\ndelay = true"),
            "line 7: network.link.delay: invalid type: boolean `true`, expected a time such as \"1ms\"",
        ),
        (
            network("[network.host.host2]\nburst = 2\nloss = [1]"),
            "line 7: network.host.host2.loss: invalid type: sequence, expected a probability",
        ),
        (
            network("[network.host.host2.down]\nqueue = 64"),
            "line 6: network.host.host2.down.queue: queue limit '64' needs a unit",
        ),
        (
            network("[[event]]\nat = \"1s\"\naction = \"burn\"\nhost = \"host1\""),
            "line 7: event.action: unknown variant `burn`, expected one of `cut`, `heal`, `set`",
        ),
        (network("[[event]]\nhost = \"host1\"\nat = 1"), "line 7: event.at: '1' is not a time"),
        (
            "hosts = 2\n[network]\nname = \"n\"".into(),
            "line 2: network: invalid type: map, expected [[network]], once for each",
        ),
        (
            "hosts = 2\n[event]\nat = \"1s\"".into(),
            "line 2: event: invalid type: map, expected [[event]], once for each",
        ),
        (
            "hosts = 2\n[[networks]]\nname = \"n\"".into(),
            "line 2: unknown field `networks`, expected one of `name`, `hosts`",
        ),
        ("hosts = 2\n[[networks]]\nname = \"n\"".into(), "`[link]`, `[[network]]`, `[[event]]`"),
    ] {
        let error = Spec::from_toml(&text).expect_err(&text).to_string();
        assert!(error.contains(told) && error.lines().count() == 1, "{text:?} gives {error:?}");
        assert!(!error.contains("untagged"), "{error}");
    }
}

#[test]
fn two_networks_have_two_subnets() {
    let text = |first: &str, second: &str, control: bool| {
        format!(
            "hosts = 2\ncontrol = {control}\n[[network]]\nname = \"a\"\n{first}\n[[network]]\nname = \"b\"\n{second}\n"
        )
    };
    let subnet = |address: &str| format!("subnet = \"{address}\"");
    for (first, second, control) in [
        (subnet("10.1.2.0"), subnet("10.1.2.0"), false),
        (subnet("10.77.2.0"), String::new(), false),
        (String::new(), subnet("10.77.0.0"), true),
    ] {
        let error = Spec::from_toml(&text(&first, &second, control)).expect_err("the same").to_string();
        assert!(error.contains("subnet") && (error.contains("network a") || error.contains("network ctrl")), "{error}");
    }
    assert!(Spec::from_toml(&text(&subnet("10.1.2.0"), &subnet("10.77.0.0"), false)).is_ok());
}

#[test]
fn networks_without_a_name_have_their_number() {
    let spec = Spec::from_toml("hosts = 2\n[[network]]\n[[network]]\nname = \"data\"\n[[network]]\n").expect("valid");
    let names: Vec<&str> = spec.networks.iter().map(|network| network.name.as_str()).collect();
    assert_eq!(names, ["net1", "data", "net3"]);
    let twice = Spec::from_toml("hosts = 2\n[[network]]\nname = \"net2\"\n[[network]]\n").expect_err("the same name");
    assert!(twice.to_string().contains("net2"), "{twice}");
}

#[test]
fn a_subnet_whose_addresses_no_host_can_have_is_refused() {
    let with = |subnet: &str| {
        Spec::from_toml(&format!("hosts = 2\n[[network]]\nname = \"n\"\nsubnet = \"{subnet}\""))
            .map_err(|e| e.to_string())
    };
    for subnet in ["255.255.255.0", "240.0.0.0", "224.0.0.0", "127.0.0.0", "0.0.0.0"] {
        let told = format!(
            "spec: network n: subnet {subnet}: no host can have its addresses; write the first address of a /24"
        );
        let error = with(subnet).expect_err(subnet);
        assert!(error.starts_with(&told), "{error}");
    }
    assert!(with("10.1.2.3").expect_err("no /24").contains("subnet 10.1.2.3: not the first address of a /24"));
    for subnet in ["10.1.2.0", "192.168.0.0", "198.18.0.0", "223.255.255.0", "1.0.0.0"] {
        assert!(with(subnet).is_ok(), "{subnet}");
    }
}

#[test]
fn a_burst_is_a_finite_number() {
    for burst in ["nan", "inf", "-inf"] {
        let error = PipeSettings::from_words(["loss=1%", &format!("burst={burst}")]).expect_err(burst);
        assert!(error.contains("burst") && error.contains("not a number"), "{error}");
    }
}

#[test]
fn a_file_without_end_is_refused() {
    let error = Spec::from_file(Path::new("/dev/zero")).expect_err("endless").to_string();
    assert!(error.contains("/dev/zero") && error.contains("more than 4 MiB"), "{error}");
}

#[test]
fn who_sends_on_a_bus_waits_and_who_receives_does_not() {
    let text = "hosts = 2\n[link]\nrate = \"10m\"\noverhead = 24\nqueue = \"64p\"\ndelay = \"5us\"\nloss = \"1%\"\n";
    let spec = Spec::from_toml(&format!("{text}[[network]]\nbus = true\n[[network]]\n")).unwrap();
    let (up, down) = spec.pipes(0, 1).unwrap();
    assert_eq!((up.rate_bytes_per_s, up.wire_overhead_bytes, up.queue.packets), (1_250_000, 24, Some(64)));
    assert_eq!((up.delay_ns, up.loss), (0, Loss::NONE));
    assert_eq!((down.rate_bytes_per_s, down.wire_overhead_bytes, down.queue.packets), (0, 0, None));
    assert_eq!((down.delay_ns, down.loss), (5000, Loss::independent(Chance::of(0.01))));
    let star = spec.pipes(1, 1).unwrap();
    assert_eq!((star.1.rate_bytes_per_s, star.1.queue.packets), (1_250_000, Some(64)), "the other network is a star");
}

#[test]
fn a_bus_has_one_rate() {
    let with = |text: &str| Spec::from_toml(&format!("hosts = 2\n{text}")).map(drop).map_err(|e| e.to_string());
    for (text, told) in [
        ("[[network]]\nbus = true", "spec: network net1: a bus needs a rate"),
        (
            "[[network]]\nbus = true\nlink = { rate = \"10m\" }\nhost.host2 = { rate = \"20m\" }",
            "spec: network net1: all hosts of a bus have one rate and overhead",
        ),
        ("plain = true\n[[network]]\nbus = true\nlink = { rate = \"10m\" }", "spec: a plain network has no medium"),
        (
            "[[network]]\ncollisions = true\nlink = { rate = \"10m\", overhead = 24 }",
            "spec: network net1: only on a bus are there collisions",
        ),
        (
            "[[network]]\nbus = true\ncollisions = true\nlink = { rate = \"10m\" }",
            "spec: network net1: collisions need an overhead of 24 or more",
        ),
    ] {
        let error = with(text).expect_err(text);
        assert!(error.starts_with(told), "{error}");
    }
    assert_eq!(with("[[network]]\nbus = true\nlink = { rate = \"10m\" }"), Ok(()));
    assert_eq!(with("[[network]]\nbus = true\ncollisions = true\nlink = { rate = \"10m\", overhead = 24 }"), Ok(()));
}

#[test]
fn what_a_link_cannot_be_set_to_is_told_before_the_network_starts() {
    let with = |event: &str| {
        let event = format!("[[event]]\nat = \"1s\"\naction = \"set\"\nhost = \"host2\"\n{event}");
        let networks = "[[network]]\nbus = true\nlink = { rate = \"10m\" }\n[[network]]\n";
        Spec::from_toml(&format!("hosts = 2\n{networks}{event}")).map(drop).map_err(|e| e.to_string())
    };
    for set in ["rate = \"20m\"", "overhead = 24", "loss = \"1%\", rate = \"20m\""] {
        for direction in ["up", "down", "both"] {
            let error = with(&format!("network = \"net1\"\ndirection = \"{direction}\"\nset = {{ {set} }}"));
            let error = error.expect_err(set);
            assert!(error.starts_with("spec: event: network net1 is a bus: its rate and overhead"), "{error}");
        }
        assert_eq!(with(&format!("network = \"net2\"\nset = {{ {set} }}")), Ok(()), "a star's links are each its own");
    }
    assert_eq!(with("network = \"net1\"\nset = { loss = \"1%\", queue = \"10p\" }"), Ok(()));
    for set in ["queue = \"10p\"", "loss = \"1%\", mark = \"5p\""] {
        let error = with(&format!("network = \"net1\"\ndirection = \"down\"\nset = {{ {set} }}")).expect_err(set);
        assert!(error.contains("queue and mark are of the direction up"), "{error}");
        assert_eq!(with(&format!("network = \"net2\"\ndirection = \"down\"\nset = {{ {set} }}")), Ok(()));
    }
    let error = with("network = \"net2\"\nset = { burst = 4 }").expect_err("no loss");
    assert!(error.starts_with("spec: event: burst needs loss"), "{error}");
}

#[test]
fn words_make_settings() {
    let mut pipe = PipeSpec::default();
    PipeSettings::from_words(["loss=2%", "delay=3ms", "queue=10p"]).unwrap().apply(&mut pipe).unwrap();
    assert_eq!(
        (pipe.loss, pipe.delay_ns, pipe.queue.packets),
        (Loss::independent(Chance::of(0.02)), 3_000_000, Some(10))
    );
    assert!(PipeSettings::from_words(["loss"]).is_err());
    assert!(PipeSettings::from_words(["los=1%"]).is_err());
}

#[test]
fn the_documented_example_is_a_spec() {
    let text = include_str!("../../../spec/network-toml.md");
    let example = text.split("```toml").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let spec = Spec::from_toml(example).expect("it parses");
    assert_eq!((spec.hosts.len(), spec.networks.len(), spec.events.len()), (4, 2, 3));
}

proptest::proptest! {
    /// No text panics, and what is accepted can be built: every pipe has parameters.
    #[test]
    fn damaged_specs_are_errors_or_specs(at in 0..TWO_RAILS.len(), cut in 0usize..20, insert in "[a-z0-9=\"\\[\\]{}.,% -]{0,6}") {
        let mut text = TWO_RAILS.to_owned();
        text.replace_range(at..(at + cut).min(TWO_RAILS.len()), &insert);
        let read = Spec::from_toml(&text);
        if let Err(error) = &read {
            let error = error.to_string();
            proptest::prop_assert!(!error.contains(char::is_control) && !error.contains("untagged"), "{error:?}");
        }
        if let Ok(spec) = read {
            for network in 0..spec.networks.len() {
                for host in 0..spec.hosts.len() {
                    proptest::prop_assert!(spec.pipes(network, host).is_ok());
                }
            }
        }
    }
}

#[test]
fn settings_without_a_direction_are_of_the_side_where_they_do_something() {
    let spec = Spec::from_toml("hosts = 2\n[[network]]\nbus = true\nlink = { rate = \"10m\" }\n[[network]]\n").unwrap();
    let directed = |network, words: &[&str]| {
        let set = Action::Set(Box::new(PipeSettings::from_words(words.iter().copied()).unwrap()));
        let all = spec.directed(network, Direction::Usual, set);
        all.into_iter()
            .map(|(to, action)| {
                let Action::Set(set) = action else { panic!("no settings") };
                (to, set.queue.is_some(), set.mark.is_some(), set.loss.is_some())
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(directed(0, &["queue=10p"])[0], (Direction::Up, true, false, false));
    assert_eq!(
        directed(0, &["queue=10p", "mark=5p", "loss=1%"]),
        [(Direction::Up, true, true, false), (Direction::Down, false, false, true)]
    );
    assert_eq!(directed(0, &["loss=1%"]), [(Direction::Down, false, false, true)]);
    assert_eq!(directed(1, &["queue=10p", "loss=1%"]), [(Direction::Down, true, false, true)], "a star");
    assert!(matches!(spec.directed(0, Direction::Usual, Action::Cut)[..], [(Direction::Both, Action::Cut)]));
    assert!(matches!(spec.directed(0, Direction::Up, Action::Cut)[..], [(Direction::Up, Action::Cut)]));
}
