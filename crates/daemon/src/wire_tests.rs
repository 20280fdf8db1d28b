//! The names of all messages between processes, which may be of programs of different ages: none is renamed unnoticed.

use holdfast_control::{Ask, Reply};
use holdfast_service::work::{At, Job, Work};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::control_socket::frames::{Ended, Kind};
use crate::control_socket::message::{DaemonAnswer, Question};
use crate::private_mount::{MountAnswer, WantedMount};
use crate::report::Report;
use crate::supervisor::message::{Begin, Kept, Message};

/// Each is read as one, and written as it was.
fn hold<T: DeserializeOwned + Serialize>(all: &[&str]) {
    for json in all {
        let read: T = serde_json::from_str(json).unwrap_or_else(|why| panic!("{json}: {why}"));
        assert_eq!(serde_json::to_string(&read).unwrap(), *json);
    }
}

#[test]
fn what_goes_through_the_control_socket_has_its_names() {
    hold::<Question>(&[
        r#"{"join":{"dir":"/a","options":["ro"],"branch":"b","snapshot":"s","linger":true}}"#,
        r#"{"work":{"volume":"v","at":{"dir":"/a","device":"0:53"},"work":{"trim":{"least":1}}}}"#,
        r#"{"mounted":{"dir":"/a","device":"0:53"}}"#,
        r#""list""#,
        r#"{"closed":{"dir":"/a","device":"0:53"}}"#,
        r#""end""#,
        r#""restart""#,
    ]);
    hold::<DaemonAnswer>(&[
        r#"{"hello":{"protocol":1}}"#,
        r#""mount""#,
        r#""begins""#,
        r#""done""#,
        concat!(
            r#"{"served":{"volume":"v","uuid":"u","label":"l","read_only":true,"linger":true,"#,
            r#""stopped":{"since":1,"reason":"r"},"falls_back":"f","mounts":[{"dir":"/a","branch":"b","#,
            r#""snapshot":"s","options":"ro","read_only":true,"user":1}]}}"#,
        ),
        r#"{"closed":{"goes_on":true,"failed":"f"}}"#,
        r#""restarts""#,
        r#""ending""#,
        r#"{"refused":{"why":"w"}}"#,
    ]);
    hold::<Ended>(&[r#"{"code":1,"failed":"f","is_cut":true}"#]);
    hold::<Vec<At>>(&[r#"[{"dir":"/a","device":"0:53"}]"#]);
    use Kind::{Bytes, End, EndOfInput, Go, Note, Pages, Progress};
    let kinds = [Bytes, EndOfInput, Note, Progress, End, Pages, Go];
    assert_eq!(kinds.map(|kind| kind as u8), [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn work_has_its_names() {
    const TREE: &str = r#"{"at":{"dir":"/a","device":"0:53"},"branch":"b","snapshot":"s"}"#;
    let names = |change: &str| {
        r#"{"names":{"tree":TREE,"owner":[1,2],"change":CHANGE}}"#.replace("CHANGE", change)
    };
    let all = [
        concat!(
            r#"{"diff":{"old":TREE,"new":TREE,"how":{"ranges":true,"stat":true,"name_only":true,"patch":true,"#,
            r#""json":true,"null":true,"exit_code":true,"quiet":true,"is_terminal":true}}}"#,
        ),
        r#"{"send":{"tree":{"tree":TREE,"since":TREE}}}"#,
        r#"{"send":{"rest":"r"}}"#,
        r#"{"receive":{"branch":"b"}}"#,
        r#"{"token":{"branch":"b"}}"#,
        r#"{"merge":{"base":TREE,"fork":TREE,"theirs":TREE,"into":"i"}}"#,
        r#"{"export":{"tree":TREE,"since":TREE,"layer":true}}"#,
        r#"{"import":{"tree":TREE,"layer":true,"files":["f"]}}"#,
        concat!(
            r#"{"list":{"tree":TREE,"path":"/p","#,
            r#""how":{"long":true,"recursive":true,"json":true,"is_terminal":true,"null":true}}}"#,
        ),
        r#"{"print":{"tree":TREE,"path":"/p"}}"#,
        r#"{"trim":{"least":1}}"#,
        r#"{"scrub":{"rate":1,"anew":true,"changes_nothing":true,"json":true,"of":"o"}}"#,
        r#"{"resize":{"bytes":1}}"#,
        r#"{"resize":{"more":1}}"#,
        r#"{"resize":"max"}"#,
        r#"{"tune":{"tree":TREE,"to":{"uuid":[1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6],"label":"l","limit":1}}}"#,
        r#"{"tune":{"tree":TREE,"to":{"uuid":null,"label":null,"limit":0}}}"#,
        r#"{"remove":{"tree":TREE,"paths":["/p"],"recursive":true,"force":true}}"#,
        r#"{"files":{"tree":TREE,"writes":true}}"#,
        r#"{"lineage":{"tree":TREE,"ask":{"branches":{"after":1}}}}"#,
    ];
    let changes = [
        r#"{"directories":{"paths":["/p"],"mode":1,"parents":true}}"#,
        r#"{"move":{"from":["/p"],"to":"/q","means":"itself","keep":true}}"#,
        r#"{"move":{"from":["/p"],"to":"/q","means":"directory","keep":true}}"#,
        r#"{"move":{"from":["/p"],"to":"/q","means":"either","keep":true}}"#,
        r#"{"link":{"old":"/p","new":"/q","force":true}}"#,
        r#"{"symlink":{"says":"/p","new":"/q","force":true}}"#,
        r#"{"set":{"paths":["/p"],"to":{"mode":{"bits":1},"user":1,"group":2},"recursive":true}}"#,
    ];
    for json in all.map(String::from).into_iter().chain(changes.map(names)) {
        hold::<Work>(&[&json.replace("TREE", TREE)]);
    }
    hold::<Job>(&[
        r#"{"volume":"v","at":null,"work":{"trim":{"least":1}}}"#,
        r#"{"volume":"v","at":null,"json":true,"work":{"trim":{"least":1}}}"#,
    ]);
}

#[test]
fn what_is_asked_of_branches_has_its_names() {
    hold::<Ask>(&[
        r#"{"branches":{"after":1}}"#,
        r#"{"branch":{"branch":"b"}}"#,
        r#"{"snapshots":{"branch":1,"after":1}}"#,
        r#"{"snapshot":{"branch":"b","name":"s"}}"#,
        r#"{"take":{"branch":"b","name":"s"}}"#,
        r#"{"fork":{"branch":"b","snapshot":"s","name":"f"}}"#,
        r#"{"roll_back":{"branch":"b","to":"s","keep":"k"}}"#,
        r#"{"promote":{"branch":"b","fork":"f","keep":"k","unchanged":true}}"#,
        r#"{"delete_snapshot":{"branch":"b","name":"s","number":1}}"#,
        r#"{"rename_snapshot":{"branch":"b","name":"s","new_name":"t"}}"#,
        r#"{"hold":{"branch":"b","name":"s","tag":"t","held":true}}"#,
        r#"{"delete_branch":{"name":"b","number":1}}"#,
        r#"{"rename_branch":{"name":"b","new_name":"c"}}"#,
        r#"{"limit_branch":{"name":"b","blocks":1}}"#,
        r#"{"release":{"name":"b"}}"#,
    ]);
    hold::<Reply>(&[
        concat!(
            r#"{"branches":{"list":[{"name":"b","number":1,"created_ns":2,"#,
            r#""origin":{"number":3,"branch":"b","name":"s"},"snapshots":4,"referenced_bytes":5,"#,
            r#""limit_bytes":6,"mounted":true}],"more":true,"failed":[{"number":1,"branch":"b","why":"w"}]}}"#,
        ),
        concat!(
            r#"{"snapshots":{"branch":"b","list":[{"name":"s","number":1,"created_ns":2,"lsn":3,"parent":4,"#,
            r#""holds":[{"tag":"t","created_ns":1}],"received":[{"volume":[1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6],"#,
            r#""number":1,"lsn":2,"created_ns":3}],"inodes":5,"forks":["f"],"more_forks":true,"mounted":true}],"#,
            r#""more":true,"failed":[]}}"#,
        ),
        r#"{"done":{"branch":"b","number":1}}"#,
        r#"{"rolled_back":{"branch":"b","forgotten":true}}"#,
        r#"{"refused":{"why":"w","errno":1}}"#,
        r#"{"diverged":{"why":"w"}}"#,
    ]);
}

#[test]
fn what_supervisors_commands_and_mounts_are_told_has_its_names() {
    let kept = concat!(
        r#"{"number":1,"dir":"/a","device":"0:53","options":"ro","tree":2,"is_branch":true,"read_only":true,"#,
        r#""user":3,"agreed":[4,5]}"#,
    );
    hold::<Begin>(&[
        r#"{"protocol":1,"linger":true,"deaths":2,"locks":3,"mounts":4,"falls_back":"f"}"#,
    ]);
    hold::<Kept>(&[kept]);
    hold::<Message>(&[
        r#""ready""#,
        &format!(r#"{{"keep":{kept}}}"#),
        r#"{"drop":{"number":1}}"#,
        r#"{"linger":{"linger":true}}"#,
        r#""restarting""#,
        r#"{"changing":{"is_so":true}}"#,
    ]);
    hold::<WantedMount>(&[concat!(
        r#"{"volume":"v","branch":"b","dir":"/a","covers":true,"options":"ro","#,
        r#""working_dir":"/w","parent":1}"#,
    )]);
    hold::<MountAnswer>(&[r#""mounted""#, r#"{"failed":{"code":1,"why":"w"}}"#]);
    hold::<Report>(&[concat!(
        r#"{"pid":1,"volume":"v","read_only":true,"options":"ro","mounted":{"branch":"b","snapshot":"s","#,
        r#""branches":1,"snapshots":2,"files":3,"failed_deletions":["d"],"#,
        r#""stopped":{"since":1,"reason":"r"},"missing":"m"},"activity":{"unit_ns":1,"grouping_power":2,"#,
        r#""operations":[["read",[[1,2]]]],"read_bytes":3,"written_bytes":4,"#,
        r#""fsyncs":{"count":1,"free":2,"writes":3,"flushes":4,"bytes":5},"#,
        r#""space":{"size_bytes":1,"used_bytes":2,"available_bytes":3,"files":4},"dirty_bytes":5,"#,
        r#""transport":"device","errors":{"count":1,"last":"l","last_secs":2}},"#,
        r#""counters":[{"name":"n","value":1,"group":"g","gauge":true,"alarm":true,"meaning":"m"}]}"#,
    )]);
}
