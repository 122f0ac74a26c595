use super::*;
use futures::future::join_all;
use tokio::{
    task::JoinSet,
    time::{advance, sleep, timeout},
};

const PORT: &str = "http";

fn room(limits: Limits, house_seats: usize) -> (Arc<Room>, mpsc::Receiver<Arc<Room>>) {
    let (knocks, heard) = mpsc::channel(16);
    let house = House::new(house_seats, knocks);
    (Room::new(&house, "shop", "web", limits), heard)
}

fn limits(seats: usize) -> Limits {
    Limits {
        patience: Duration::from_secs(60),
        seats,
    }
}

fn ready(addresses: &[&str]) -> HashMap<Arc<str>, Vec<SocketAddr>> {
    let parsed = addresses.iter().map(|text| text.parse().unwrap()).collect();
    HashMap::from([(PORT.into(), parsed)])
}

#[tokio::test(start_paused = true)]
async fn all_seats_are_released_by_the_change_that_brings_an_endpoint() {
    let (room, _heard) = room(limits(1_000), 10_000);
    let begun = Instant::now();
    let visits = (0..1_000).map(|_| {
        let mut visit = room.visit();
        async move { visit.endpoint(PORT).await.map(|busy| busy.address()) }
    });
    let (reached, ()) = tokio::join!(join_all(visits), async {
        yield_now().await;
        assert_eq!(room.waiting(), 1_000);
        advance(Duration::from_secs(5)).await;
        room.publish(&ready(&["10.0.0.1:80"]));
    });
    assert!(reached.iter().all(Result::is_ok));
    assert_eq!(
        begun.elapsed(),
        Duration::from_secs(5),
        "on that very event"
    );
    assert_eq!((room.waiting(), room.house.taken()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn whoever_is_released_reaches_the_target_before_the_next_leave() {
    let (room, _heard) = room(limits(1_000), 10_000);
    let (on_the_way, most) = (&AtomicUsize::new(0), &AtomicUsize::new(0));
    let visits = (0..1_000).map(|_| {
        let mut visit = room.visit();
        async move {
            let endpoint = visit.endpoint(PORT).await.unwrap();
            let now = on_the_way.fetch_add(1, Ordering::Relaxed) + 1;
            most.fetch_max(now, Ordering::Relaxed);
            yield_now().await;
            on_the_way.fetch_sub(1, Ordering::Relaxed);
            drop(endpoint);
        }
    });
    tokio::join!(join_all(visits), async {
        yield_now().await;
        room.publish(&ready(&["10.0.0.1:80"]));
    });
    let most = most.load(Ordering::Relaxed);
    assert!(most <= 2 * TURNS, "{most} were on the way at once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nobody_is_left_behind_when_endpoints_come_and_go_and_others_leave() {
    let (room, _heard) = room(limits(10_000), 10_000);
    let mut visits = JoinSet::new();
    for number in 0..2_000_u64 {
        let mut visit = room.visit();
        visits.spawn(async move {
            let patience = Duration::from_micros(50 * (number % 400));
            if number % 3 == 0 {
                let _ = timeout(patience, visit.endpoint(PORT)).await;
            } else {
                sleep(patience).await;
                let busy = visit.endpoint(PORT).await.unwrap();
                yield_now().await;
                drop(busy);
            }
        });
    }
    for _ in 0..500 {
        room.publish(&ready(&["10.0.0.1:80"]));
        yield_now().await;
        room.publish(&HashMap::new());
        yield_now().await;
    }
    room.publish(&ready(&["10.0.0.1:80"]));
    let all = timeout(Duration::from_secs(20), visits.join_all()).await;
    assert!(all.is_ok(), "{} still wait", room.waiting());
    assert_eq!((room.waiting(), room.house.taken()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_full_room_turns_away_and_another_room_does_not_care() {
    let (knocks, _heard) = mpsc::channel(16);
    let house = House::new(10, knocks);
    let web = Room::new(&house, "shop", "web", limits(1));
    let api = Room::new(&house, "shop", "api", limits(1));
    let mut first = web.visit();
    let mut waits = Box::pin(first.endpoint(PORT));
    assert!(timeout(Duration::from_secs(1), &mut waits).await.is_err());
    let refused = web.visit().endpoint(PORT).await.err();
    assert_eq!(refused, Some(Turned::Full));
    let mut other = api.visit();
    let other = timeout(Duration::from_secs(1), other.endpoint(PORT)).await;
    assert!(other.is_err(), "it waits");
}

#[tokio::test(start_paused = true)]
async fn a_full_house_turns_away() {
    let (room, _heard) = room(limits(10), 1);
    let mut first = room.visit();
    let mut waits = Box::pin(first.endpoint(PORT));
    assert!(timeout(Duration::from_secs(1), &mut waits).await.is_err());
    let refused = room.visit().endpoint(PORT).await.err();
    assert_eq!(refused, Some(Turned::Full));
    assert_eq!(
        room.waiting(),
        1,
        "a seat that was not taken is not counted"
    );
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_too_long_is_told() {
    let (room, _heard) = room(limits(10), 10);
    let begun = Instant::now();
    assert_eq!(room.visit().endpoint(PORT).await.err(), Some(Turned::Late));
    assert_eq!(begun.elapsed(), Duration::from_secs(60));
    assert_eq!(room.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn whoever_leaves_frees_the_seat() {
    let (room, _heard) = room(limits(1), 1);
    let mut visit = room.visit();
    let left = timeout(Duration::from_secs(1), visit.endpoint(PORT)).await;
    assert!(left.is_err());
    drop(visit);
    assert_eq!((room.waiting(), room.house.taken()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn many_who_wait_cause_one_knock() {
    let (room, mut heard) = room(limits(100), 100);
    let visits = (0..50).map(|_| {
        let mut visit = room.visit();
        async move { visit.endpoint(PORT).await.is_ok() }
    });
    tokio::join!(join_all(visits), async {
        yield_now().await;
        assert!(heard.try_recv().is_ok());
        assert!(heard.try_recv().is_err(), "one at a time");
        assert!(room.still_wants_knocks());
        room.publish(&ready(&["10.0.0.1:80"]));
    });
    assert!(!room.still_wants_knocks(), "nobody waits any more");
}

#[tokio::test(start_paused = true)]
async fn whoever_is_not_through_when_the_endpoint_vanishes_is_knocked_for() {
    let (room, mut heard) = room(limits(100), 100);
    let visits = (0..50).map(|_| {
        let mut visit = room.visit();
        async move { visit.endpoint(PORT).await.is_ok() }
    });
    let flap = async {
        yield_now().await;
        assert!(heard.try_recv().is_ok());
        room.publish(&ready(&["10.0.0.1:80"]));
        assert!(!room.still_wants_knocks(), "it is awake");
        room.publish(&HashMap::new());
        assert!(room.waiting() > 0 && heard.try_recv().is_ok());
        assert!(heard.try_recv().is_err(), "one at a time");
        assert!(room.still_wants_knocks(), "until it is awake again");
    };
    let mut visits = Box::pin(join_all(visits));
    tokio::select! {
        _ = &mut visits => panic!("there is no endpoint"),
        () = flap => {}
    }
    room.publish(&ready(&["10.0.0.1:80"]));
    assert!(visits.await.into_iter().all(|reached| reached));
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_refuses_is_left_alone_for_a_while() {
    let (room, _heard) = room(limits(10), 10);
    room.publish(&ready(&["10.0.0.1:80", "10.0.0.2:80"]));
    let mut visit = room.visit();
    let first = visit.endpoint(PORT).await.unwrap();
    first.shun();
    let second = visit.endpoint(PORT).await.unwrap();
    assert_ne!(first.address(), second.address(), "the other one is next");
    second.shun();
    let begun = Instant::now();
    visit.endpoint(PORT).await.unwrap();
    assert_eq!(begun.elapsed(), SHUNNED_FIRST, "and both are tried again");
}

#[tokio::test(start_paused = true)]
async fn many_who_are_refused_at_once_are_no_reason_to_stay_away_longer() {
    let (room, _heard) = room(limits(10), 10);
    room.publish(&ready(&["10.0.0.1:80"]));
    let mut visit = room.visit();
    let at_once = [(); 5].map(|()| room.visit());
    let mut refused = Vec::new();
    for mut visit in at_once {
        refused.push(visit.endpoint(PORT).await.unwrap());
    }
    refused.iter().for_each(Busy::shun);
    let begun = Instant::now();
    visit.endpoint(PORT).await.unwrap();
    assert_eq!(begun.elapsed(), SHUNNED_FIRST);
}

const SHUNNED_FIRST: Duration = Duration::from_millis(50);

#[tokio::test(start_paused = true)]
async fn requests_go_where_the_least_is_to_do() {
    let (room, _heard) = room(limits(10), 10);
    room.publish(&ready(&["10.0.0.1:80", "10.0.0.2:80"]));
    let mut visit = room.visit();
    let first = visit.endpoint(PORT).await.unwrap();
    let second = visit.endpoint(PORT).await.unwrap();
    assert_ne!(first.address(), second.address());
    drop(first);
    let third = visit.endpoint(PORT).await.unwrap();
    assert_ne!(third.address(), second.address());
}

#[tokio::test(start_paused = true)]
async fn passing_traffic_is_reported_now_and_then_while_it_is_proxied() {
    let (room, mut heard) = room(limits(10), 10);
    room.publish(&ready(&["10.0.0.1:80"]));
    room.visit().endpoint(PORT).await.unwrap();
    assert!(heard.try_recv().is_err(), "not in serve mode");
    room.set_proxied(true);
    room.visit().endpoint(PORT).await.unwrap();
    assert!(heard.try_recv().is_ok());
    assert!(!room.still_wants_knocks());
    room.visit().endpoint(PORT).await.unwrap();
    assert!(heard.try_recv().is_err(), "once a second");
    advance(Duration::from_secs(1)).await;
    room.visit().endpoint(PORT).await.unwrap();
    assert!(heard.try_recv().is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_time_from_the_first_who_waits_to_the_first_endpoint_is_told_once() {
    let (room, _heard) = room(limits(10), 10);
    let (mut first, mut second) = (room.visit(), room.visit());
    let waits = async { tokio::join!(first.endpoint(PORT), second.endpoint(PORT)) };
    let (_, ()) = tokio::join!(waits, async {
        yield_now().await;
        advance(Duration::from_secs(5)).await;
        let took = room.publish(&ready(&["10.0.0.1:80"]));
        assert_eq!(took, Some(Duration::from_secs(5)));
    });
    assert_eq!(room.publish(&ready(&["10.0.0.2:80"])), None);
    room.publish(&HashMap::new());
    let mut leaves = room.visit();
    let waits = timeout(Duration::from_secs(1), leaves.endpoint(PORT)).await;
    assert!(waits.is_err());
    drop(leaves);
    assert_eq!(room.publish(&ready(&["10.0.0.1:80"])), None, "nobody waits");
}

#[tokio::test(start_paused = true)]
async fn whoever_could_not_reach_one_endpoint_tries_another_first() {
    let (room, _heard) = room(limits(10), 10);
    room.publish(&ready(&["10.0.0.1:80", "10.0.0.2:80"]));
    let mut visit = room.visit();
    let first = visit.endpoint(PORT).await.unwrap().address();
    let busy = visit.endpoint(PORT).await.unwrap();
    assert_eq!(busy.address(), first);
    visit.failed(&busy).unwrap();
    drop(busy);
    assert_ne!(visit.endpoint(PORT).await.unwrap().address(), first);
    let other = room.visit().endpoint(PORT).await.unwrap();
    assert_eq!(other.address(), first, "others are not told");
    advance(Duration::from_secs(60)).await;
    assert_eq!(visit.failed(&other), Err(Turned::Late));
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_back_from_one_that_refused_is_no_new_start() {
    let (room, _heard) = room(limits(10), 10);
    room.publish(&ready(&["10.0.0.1:80"]));
    let mut visit = room.visit();
    let busy = visit.endpoint(PORT).await.unwrap();
    busy.shun();
    visit.failed(&busy).unwrap();
    room.publish(&HashMap::new());
    let (_, ()) = tokio::join!(visit.endpoint(PORT), async {
        yield_now().await;
        assert_eq!(room.waiting(), 1);
        assert_eq!(room.publish(&ready(&["10.0.0.1:80"])), None);
    });
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_sent_back_is_left_alone_for_longer_each_time() {
    let (room, _heard) = room(limits(10), 10);
    let address = IpAddr::from([10, 0, 0, 1]);
    let seen = Seen {
        uid: "one".into(),
        ports: vec![80],
        ready: false,
    };
    room.set_pods(Some([].into()), HashMap::from([(address, seen)]));
    let pod = room.starting().borrow().pods[&address].clone();
    let rests = [(); 6].map(|()| {
        room.let_in(&pod, 80);
        room.send_back(&pod);
        let (since, rests) = pod.times();
        (rests - since).as_millis()
    });
    assert_eq!(rests, [250, 500, 1_000, 2_000, 4_000, 4_000]);
}

#[tokio::test(start_paused = true)]
async fn whether_somebody_waits_is_told_at_once() {
    let (room, _heard) = room(limits(1), 1);
    let awaited = || room.starting().borrow().awaited;
    assert!(!awaited());
    let mut visit = room.visit();
    let sits = timeout(Duration::from_secs(1), visit.endpoint(PORT));
    let (_, ()) = tokio::join!(sits, async {
        yield_now().await;
        assert!(awaited());
        let full = room.visit().endpoint(PORT).await.err();
        assert_eq!(full, Some(Turned::Full));
        assert!(awaited());
    });
    drop(visit);
    assert!(!awaited());
}
