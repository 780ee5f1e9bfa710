//! tmp
use super::{Context, calls::CallError};
use crate::{api::UpgradeConfig, world::World};
/// tmp
pub async fn reconcile(
    _c: &Context,
    _w: &World,
    _x: &UpgradeConfig,
) -> Result<Option<jiff::Timestamp>, CallError> {
    Ok(None)
}
