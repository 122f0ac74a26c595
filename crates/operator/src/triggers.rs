//! Asking the triggers, each ElastiService at its own moments, never inside a reconcile. One slow
//! server delays only those who ask it.

use crate::{clock, facts::Declared, index::Memory, observe, operator::Operator};
use elasti_api::ElastiService;
use elasti_core::{
    schedule,
    verdict::{Opinion, Verdict},
};
use elasti_runtime::watch::Key;
use jiff::{SignedDuration, Timestamp};
use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// Until a server that is asked by many already is asked again.
const BUSY: Duration = Duration::from_secs(1);
/// What the triggers said counts for so many times their interval.
const TRUST: u32 = 3;

/// Works until it is dropped.
pub(crate) async fn work(operator: &Operator) {
    loop {
        let key = operator.questions.next().await;
        if let Some(object) = understood(operator, &key).filter(|object| has_questions(object)) {
            let again = ask(operator, &key, &object).await;
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

/// For how long what they said counts: whoever is late by more has ceased to answer.
pub(crate) fn trust(operator: &Operator, object: &ElastiService) -> SignedDuration {
    let trust = interval(operator, object).saturating_mul(TRUST);
    SignedDuration::try_from(trust).unwrap_or(SignedDuration::MAX)
}

/// How soon to ask again. What the clock says waits for no server.
async fn ask(operator: &Operator, key: &Key, object: &ElastiService) -> Duration {
    let now = clock::now();
    let window = window(object, now);
    note_window(operator, key, *window.as_ref().unwrap_or(&false));
    let opinion = match window {
        Ok(_) => {
            let triggers = &object.spec.triggers;
            let Some(turn) = operator.prometheus.turn(triggers) else {
                return BUSY;
            };
            let cooldown = observe::cooldown(object.spec.cooldown_period).unsigned_abs();
            let asked = operator.prometheus.opinion(triggers, turn, cooldown, now);
            asked.await
        }
        Err(error) => Opinion::unknown("InvalidEnabledPeriod", error),
    };
    let (now, trust) = (clock::now(), trust(operator, object));
    operator.learn(|index| {
        let mut is_news = false;
        index.remember(key, |memory| {
            is_news = note_opinion(memory, opinion, was_used(object), now, trust);
        });
        is_news.then(|| key.clone()).into_iter().collect()
    });
    interval(operator, object)
}

fn note_window(operator: &Operator, key: &Key, open: bool) {
    operator.learn(|index| {
        let mut is_news = false;
        index.remember(key, |memory| {
            is_news = memory.may_sleep.replace(open).unwrap_or(true) != open;
        });
        is_news.then(|| key.clone()).into_iter().collect()
    });
}

/// Whether that changes anything. What had ceased to count counts again.
fn note_opinion(
    memory: &mut Memory,
    opinion: Opinion,
    was_used: bool,
    now: Timestamp,
    trust: SignedDuration,
) -> bool {
    // Since when it is idle, nobody remembers: since now, at the latest.
    let ended = memory.opinion.is_none() && opinion.verdict == Verdict::Idle && was_used;
    if opinion.verdict == Verdict::Active || ended {
        memory.last_active = memory.last_active.max(Some(now));
    }
    let said = |opinion: &Opinion| (opinion.verdict, opinion.reason);
    let counted = memory.has_fresh_opinion(now, trust);
    let before = memory.opinion.as_ref().filter(|_| counted);
    let is_news = before.map(said) != Some(said(&opinion));
    memory.answered = Some(now);
    memory.opinion = Some(opinion);
    is_news
}

/// Whether the last that was written down of it is that it was in use.
fn was_used(object: &ElastiService) -> bool {
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    let mut idle = conditions.filter(|condition| condition.type_ == "Idle");
    idle.any(|condition| condition.status == "False")
}

fn window(object: &ElastiService, now: Timestamp) -> Result<bool, String> {
    match &object.spec.enabled_period {
        None => Ok(true),
        Some(period) => schedule::window(period, now)
            .map(|window| window.open)
            .map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests;
