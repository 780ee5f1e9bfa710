//! What a schema cannot catch: pure checks of stored objects, for the condition `Valid`.
/// tmp
pub fn upgrade_job(_j: &crate::api::UpgradeJob, _p: &[crate::openshift::machine_config_pool::MachineConfigPool]) -> Vec<String> { vec![] }
