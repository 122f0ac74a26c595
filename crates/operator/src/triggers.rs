//! Asking the triggers, each ElastiService at its own moments, never inside a reconcile. One slow
//! server delays only those who ask it.

use crate::{clock, facts::Declared, observe, operator::Operator, prometheus::Turn};
use elasti_api::ElastiService;
use elasti_core::{
    schedule,
    verdict::{Opinion, Verdict},
};
use elasti_runtime::watch::Key;
use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// Until a server that is asked by many already is asked again.
const BUSY: Duration = Duration::from_secs(1);

/// Works until it is dropped.
pub(crate) async fn work(operator: &Operator) {
    loop {
        let key = operator.questions.next().await;
        if let Some(object) = understood(operator, &key).filter(|object| has_questions(object)) {
            let again = match operator.prometheus.turn(&object.spec.triggers) {
                Some(turn) => {
                    ask(operator, &key, &object, turn).await;
                    interval(operator, &object)
                }
                None => BUSY,
            };
            operator.questions.push(key.clone(), Instant::now() + again);
        }
        operator.questions.done(&key);
    }
}

/// The first question comes at a moment of its own, so that thousands do not ask at once.
pub(crate) fn begin(operator: &Operator, key: &Key, object: &ElastiService) {
    if !has_questions(object) {
        return;
    }
    let interval = interval(operator, object);
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    let spread = u32::try_from(hasher.finish() % 1_000).unwrap_or_default();
    operator
        .questions
        .push(key.clone(), Instant::now() + interval * spread / 1_000);
}

/// Whether time or a trigger has a say.
fn has_questions(object: &ElastiService) -> bool {
    !object.spec.triggers.is_empty() || object.spec.enabled_period.is_some()
}

fn understood(operator: &Operator, key: &Key) -> Option<Arc<ElastiService>> {
    operator.read(|index| match index.declared(key) {
        Some(Declared::Understood(object)) => Some(object.whole()),
        _ => None,
    })
}

pub(crate) fn interval(operator: &Operator, object: &ElastiService) -> Duration {
    let own = object.spec.polling_interval.as_ref();
    own.and_then(|interval| interval.get().ok())
        .unwrap_or(operator.settings.polling_interval)
}

async fn ask(operator: &Operator, key: &Key, object: &ElastiService, turn: Turn) {
    let now = clock::now();
    let cooldown = observe::cooldown(object.spec.cooldown_period).unsigned_abs();
    let triggers = &object.spec.triggers;
    let asked = operator.prometheus.opinion(triggers, turn, cooldown, now);
    let (opinion, may_sleep) = match window(object, now) {
        Ok(open) => (asked.await, open),
        Err(error) => (Opinion::unknown("InvalidEnabledPeriod", error), false),
    };
    operator.learn(|index| {
        let before = index.memory(key);
        index.remember(key, |memory| {
            if opinion.verdict == Verdict::Active {
                memory.last_active = Some(now);
            }
            // Since when it is idle, nobody remembers: since now, at the latest.
            if before.opinion.is_none() && opinion.verdict == Verdict::Idle && was_used(object) {
                memory.last_active = memory.last_active.max(Some(now));
            }
            memory.asked = Some(now);
            memory.opinion = Some(opinion.clone());
            memory.may_sleep = Some(may_sleep);
        });
        let is_news = before.opinion.map(|before| (before.verdict, before.reason))
            != Some((opinion.verdict, opinion.reason))
            || before.may_sleep != Some(may_sleep);
        is_news.then(|| key.clone()).into_iter().collect()
    });
}

/// Whether the last that was written down of it is that it was in use.
fn was_used(object: &ElastiService) -> bool {
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    let mut idle = conditions.filter(|condition| condition.type_ == "Idle");
    idle.any(|condition| condition.status == "False")
}

fn window(object: &ElastiService, now: jiff::Timestamp) -> Result<bool, String> {
    match &object.spec.enabled_period {
        None => Ok(true),
        Some(period) => schedule::window(period, now)
            .map(|window| window.open)
            .map_err(|error| error.to_string()),
    }
}
