//! `podJQSelector`: jq over pods, by jaq.
//!
//! An expression may never end, or fill the memory: the operator evaluates it in a process of its own, which is limited and
//! killed (`controller::pod_selector`). What runs there is [`serve`].

use std::io::{Read, Write};

use jaq_core::{
    Compiler, Ctx, Vars, data,
    load::{Arena, File, Loader},
    unwrap_valr,
};
use jaq_json::{Val, read};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::text;

/// Most memory that an evaluation may take, in bytes.
const MAX_MEMORY: u64 = 128 << 20;
/// Most seconds of processor time that an evaluation may take.
const MAX_SECONDS: u64 = 5;
/// Most values that an expression may yield for one pod.
const MAX_VALUES: usize = 10_000;
/// Longest error that is told, in characters.
const MAX_TEXT: usize = 300;

/// An expression, and the pods that it is asked about.
#[derive(Debug, Serialize, Deserialize)]
pub struct Question {
    /// The expression.
    pub program: String,
    /// The pods, as the API server has them.
    pub pods: Vec<Value>,
}

/// Whether each pod is meant, or why that cannot be told; or why the expression is none.
pub type Answer = Result<Vec<Result<bool, String>>, String>;

/// Evaluates. A pod is meant if any value is `true`; other values than booleans are passed over, as by the peer. An error is an
/// error even after a `true`: who deletes pods by an expression that fails does not know what it says.
pub fn evaluate(question: &Question) -> Answer {
    let program = File {
        code: question.program.as_str(),
        path: (),
    };
    let defs = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
    let funs = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs());
    let arena = Arena::default();
    let modules = Loader::new(defs)
        .load(&arena, program)
        .map_err(|errors| no_program(&format!("{errors:?}")))?;
    let filter = Compiler::default()
        .with_funs(funs)
        .compile(modules)
        .map_err(|errors| no_program(&format!("{errors:?}")))?;
    let one = |pod: &Value| -> Result<bool, String> {
        let pod = read::parse_single(pod.to_string().as_bytes()).map_err(|e| e.to_string())?;
        let ctx = Ctx::<data::JustLut<Val>>::new(&filter.lut, Vars::new([]));
        let mut is_meant = false;
        for (count, value) in filter.id.run((ctx, pod)).map(unwrap_valr).enumerate() {
            if count >= MAX_VALUES {
                return Err(format!("it yields more than {MAX_VALUES} values"));
            }
            let value = value.map_err(|e| text::line(&e.to_string(), MAX_TEXT))?;
            is_meant |= matches!(value, Val::Bool(true));
        }
        Ok(is_meant)
    };
    Ok(question.pods.iter().map(one).collect())
}

fn no_program(errors: &str) -> String {
    format!(
        "podJQSelector is no jq expression: {}",
        text::line(errors, MAX_TEXT)
    )
}

/// The other process: answers one question and ends. It limits itself first.
pub fn serve(mut input: impl Read, mut output: impl Write) -> std::io::Result<()> {
    let limit = |most: u64| Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    setrlimit(Resource::Data, limit(MAX_MEMORY))?;
    setrlimit(Resource::Cpu, limit(MAX_SECONDS))?;
    // A crash is an answer; a core file would fill the disk.
    setrlimit(Resource::Core, limit(0))?;
    let mut question = Vec::new();
    input.read_to_end(&mut question)?;
    let question: Question = serde_json::from_slice(&question)?;
    serde_json::to_writer(&mut output, &evaluate(&question))?;
    output.flush()
}
