use super::*;
use proptest::prelude::*;

/// What the application calls.
#[derive(Clone, Copy, Debug)]
enum Call {
    Send,
    Notify,
    Disconnect,
}

fn broken() -> Input {
    Input::Broken(Refusal::new(Error::TIMED_OUT, "late"))
}

/// A client or server after these inputs and calls, and all that was done and reported.
fn run(mut machine: Machine, steps: &[Result<Input, Call>]) -> (Machine, Vec<Act>, Vec<Report>) {
    let (mut acts, mut reports) = (Vec::new(), Vec::new());
    for step in steps {
        let mut next = match step {
            Ok(input) => machine.on(input.clone()),
            Err(Call::Send) => machine.send().unwrap_or_default(),
            Err(Call::Notify) => machine.notify().unwrap_or_default(),
            Err(Call::Disconnect) => machine.disconnect().map(|(_, next)| next).unwrap_or_default(),
        };
        if next.acts.contains(&Act::Prepare) {
            next.reports.extend(machine.on(Input::Prepared).reports);
        }
        acts.append(&mut next.acts);
        reports.append(&mut next.reports);
    }
    (machine, acts, reports)
}

fn connected() -> Vec<Result<Input, Call>> {
    vec![
        Ok(Input::AddressResolved),
        Ok(Input::RouteResolved),
        Err(Call::Send),
        Ok(Input::Response),
        Err(Call::Notify),
    ]
}

#[test]
fn a_client_goes_through_all_stages() {
    let mut steps = connected();
    steps.extend([Err(Call::Disconnect), Ok(Input::Disconnected)]);
    let (machine, acts, reports) = run(Machine::client(), &steps);
    assert_eq!(reports, [Report::Resolved, Report::Connected, Report::Disconnected]);
    use Act::*;
    assert_eq!(acts, [ResolveRoute, Connect, Prepare, Establish, Disconnect, Stop, Stop]);
    assert_eq!(machine.phase(), Phase::Over);
}

#[test]
fn an_end_that_overtakes_the_answer_of_the_client_is_reported_behind_it() {
    let (mut machine, acts, reports) =
        run(Machine::server(), &[Ok(Input::Disconnected), Ok(Input::Established)]);
    assert_eq!(reports, [Report::Notified, Report::Disconnected]);
    assert_eq!((machine.phase(), &acts[..]), (Phase::Unanswered, &[Act::Stop][..]));
    assert!(machine.is_timed(), "the peer waits for an answer");
    assert_eq!(machine.answer().acts, [Act::Disconnect]);
    assert_eq!(machine.answer(), Next::default());
}

#[test]
fn a_client_that_never_notified_establishes_what_it_ends() {
    let mut steps = connected();
    steps.pop();
    let (mut machine, ..) = run(Machine::client(), &steps);
    let (_, next) = machine.disconnect().expect("connected");
    assert_eq!(next.acts, [Act::Establish, Act::Disconnect, Act::Stop]);
}

#[test]
fn the_peer_of_an_end_is_answered_once() {
    let mut steps = connected();
    steps.extend([Ok(Input::Disconnected), Err(Call::Disconnect), Err(Call::Disconnect)]);
    let (machine, acts, reports) = run(Machine::client(), &steps);
    assert_eq!(acts.iter().filter(|&&act| act == Act::Disconnect).count(), 1);
    assert_eq!(reports.last(), Some(&Report::Disconnected));
    assert!(!machine.is_timed());
}

#[test]
fn an_address_that_resolves_late_is_asked_for_again() {
    let late = [Ok(Input::AddressLate), Ok(Input::AddressLate), Ok(Input::AddressResolved)];
    let (machine, acts, _) = run(Machine::client(), &late);
    assert_eq!(acts, [Act::ResolveAddress, Act::ResolveAddress, Act::ResolveRoute]);
    assert!(machine.is_timed());
}

fn step() -> impl Strategy<Value = Result<Input, Call>> {
    prop_oneof![
        Just(Ok(Input::AddressResolved)),
        Just(Ok(Input::AddressLate)),
        Just(Ok(Input::RouteResolved)),
        Just(Ok(Input::Response)),
        Just(Ok(Input::Established)),
        Just(Ok(Input::Disconnected)),
        Just(Ok(broken())),
        Just(Err(Call::Send)),
        Just(Err(Call::Notify)),
        Just(Err(Call::Disconnect)),
    ]
}

/// The place of a report in the row.
fn rank(report: &Report) -> usize {
    match report {
        Report::Resolved => 0,
        Report::Connected | Report::Notified => 1,
        Report::Failed(_) | Report::Disconnected | Report::Lost(_) => 2,
    }
}

fn machine(is_client: bool) -> Machine {
    if is_client { Machine::client() } else { Machine::server() }
}

proptest! {
    #![proptest_config(crate::property::config())]

    #[test]
    fn reports_come_once_and_in_order(is_client in any::<bool>(), steps in proptest::collection::vec(step(), 0..24)) {
        let (_, acts, reports) = run(machine(is_client), &steps);
        prop_assert!(reports.windows(2).all(|pair| rank(&pair[0]) < rank(&pair[1])), "{reports:?}");
        // A failure comes in the place of a connection; the end of a connection comes after it.
        let stood = reports.iter().any(|report| rank(report) == 1);
        for report in &reports {
            match report {
                Report::Failed(_) => prop_assert!(!stood),
                Report::Disconnected | Report::Lost(_) => prop_assert!(stood),
                Report::Resolved | Report::Connected => prop_assert!(is_client),
                Report::Notified => prop_assert!(!is_client),
            }
        }
        for once in [Act::Connect, Act::Prepare, Act::Establish, Act::Disconnect] {
            prop_assert!(acts.iter().filter(|&&act| act == once).count() <= 1, "{acts:?}");
        }
    }

    #[test]
    fn an_end_is_always_reached(is_client in any::<bool>(), steps in proptest::collection::vec(step(), 0..24)) {
        let (mut machine, ..) = run(machine(is_client), &steps);
        machine.on(broken());
        prop_assert_eq!(machine.phase(), Phase::Over);
        prop_assert!(!machine.is_timed());
        prop_assert_eq!(machine.on(Input::Disconnected), Next::default());
    }
}
