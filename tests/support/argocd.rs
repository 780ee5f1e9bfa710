//! Argo CD's look at an object: the health checks of `deploy/argocd`, run as Argo CD runs them.

use std::path::{Path, PathBuf};

use mlua::{Lua, LuaOptions, StdLib, Table};
use serde_json::Value;

/// What Argo CD shows of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Health {
    pub status: String,
    pub message: String,
}

/// What a health check may answer. `Missing` is Argo CD's own: there is no object to look at.
const STATUSES: [&str; 4] = ["Healthy", "Progressing", "Suspended", "Degraded"];

/// Where the checks are, in the layout of Argo CD's own repository.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy/argocd/resource_customizations/managedupgrade.appuio.io")
}

/// Runs the check of the object's kind. Of Lua's libraries there is `table` only, as in Argo CD with `useOpenLibs` off.
pub fn health(object: &Value) -> Health {
    let kind = object["kind"].as_str().unwrap();
    let script = std::fs::read_to_string(folder().join(kind).join("health.lua")).unwrap();
    let lua = Lua::new_with(StdLib::TABLE, LuaOptions::default()).unwrap();
    assert!(lua.globals().get::<Option<Table>>("string").unwrap().is_none());
    lua.globals().set("obj", to_lua(&lua, object)).unwrap();
    let answer: Table = lua
        .load(&script)
        .set_name(kind)
        .eval()
        .unwrap_or_else(|e| panic!("{e}\n{object:#}"));
    let health = Health {
        status: answer.get("status").unwrap(),
        message: answer.get("message").unwrap(),
    };
    assert!(
        STATUSES.contains(&health.status.as_str()),
        "{health:?}\n{object:#}"
    );
    assert!(!health.message.is_empty(), "{health:?}\n{object:#}");
    health
}

fn to_lua(lua: &Lua, value: &Value) -> mlua::Value {
    match value {
        Value::Null => mlua::Value::Nil,
        Value::Bool(value) => mlua::Value::Boolean(*value),
        Value::Number(number) => mlua::Value::Number(number.as_f64().unwrap()),
        Value::String(text) => mlua::Value::String(lua.create_string(text).unwrap()),
        Value::Array(items) => {
            let items = items.iter().map(|item| to_lua(lua, item));
            mlua::Value::Table(lua.create_sequence_from(items).unwrap())
        }
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, below)| (name.as_str(), to_lua(lua, below)));
            mlua::Value::Table(lua.create_table_from(fields).unwrap())
        }
    }
}
