//! What to try next: every line but those with a `#` is a command that works as printed.

use crate::apps::{NAMESPACE, VISITOR};

/// With which kubectl, and how to remove everything.
pub(crate) fn farewell(kubectl: &str, remove: &[String]) -> String {
    let remove = remove.join("\n  ");
    format!(
        "
Everything goes on running. Try next:
  # watch them fall asleep and wake
  {kubectl} -n {NAMESPACE} get elastiservices -w
  # wake one
  {kubectl} -n {NAMESPACE} exec deploy/{VISITOR} -- /elasti-echo get http://web/hello
  # its conditions and events
  {kubectl} -n {NAMESPACE} describe elastiservice web
  # metrics of a resolver
  {kubectl} get --raw /api/v1/namespaces/elasti/services/elasti-resolver-service:8013/proxy/metrics
Remove everything:
  {remove}"
    )
}

/// As a shell takes it for one word.
pub(crate) fn word(text: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "/._-:+".contains(char);
    if text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// As a shell splits it.
    fn words(line: &str) -> Vec<String> {
        let show = format!("set -- {line}\nfor word in \"$@\"; do printf '%s\\0' \"$word\"; done");
        let output = Command::new("sh").args(["-euc", &show]).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        let printed = String::from_utf8(output.stdout).unwrap();
        printed.split_terminator('\0').map(str::to_owned).collect()
    }

    #[test]
    fn every_line_is_a_command_as_printed() {
        let program = "/home/o'neil/my clone/elasti-cluster";
        let kubectl = format!("{} --name elasti kubectl", word(program));
        let text = farewell(&kubectl, &["remove all".into(), "remove more".into()]);
        let indented = text.lines().filter_map(|line| line.strip_prefix("  "));
        let commands: Vec<Vec<String>> = indented
            .filter(|line| !line.starts_with('#'))
            .map(words)
            .collect();
        let ours = [program, "--name", "elasti", "kubectl"];
        let raw = "/api/v1/namespaces/elasti/services/elasti-resolver-service:8013/proxy/metrics";
        let wanted = [
            [
                &ours[..],
                &["-n", "elasti-demo", "get", "elastiservices", "-w"],
            ]
            .concat(),
            [
                &ours[..],
                &["-n", "elasti-demo", "exec", "deploy/visitor", "--"],
                &["/elasti-echo", "get", "http://web/hello"],
            ]
            .concat(),
            [
                &ours[..],
                &["-n", "elasti-demo", "describe", "elastiservice", "web"],
            ]
            .concat(),
            [&ours[..], &["get", "--raw", raw]].concat(),
            vec!["remove", "all"],
            vec!["remove", "more"],
        ];
        assert_eq!(commands, wanted);
    }
}
