-- Of managedupgrade.appuio.io: healthy when the ClusterVersion of the cluster is as this one says.
-- Degraded also when the API server would refuse an overlay to come.
-- Argo CD runs this without Lua's libraries: no string, no math.

local function condition(type, status)
  for _, c in ipairs((obj.status or {}).conditions or {}) do
    if c.type == type and (status == nil or c.status == status) then return c end
  end
end

local function health(status, message)
  return {status = status, message = message}
end

local valid = condition("Valid")
if valid == nil then
  return health("Progressing", "the operator has not looked at it yet")
end
if valid.observedGeneration ~= obj.metadata.generation then
  return health("Progressing", "the operator has not looked at the change yet")
end
if valid.status ~= "True" then
  return health("Degraded", valid.reason .. ": " .. valid.message)
end
local applied = condition("Applied")
if applied == nil then
  return health("Progressing", "it is not applied yet")
end
if applied.status ~= "True" then
  -- While the control plane is being updated.
  local status = applied.reason == "Held" and "Progressing" or "Degraded"
  return health(status, applied.reason .. ": " .. applied.message)
end
return health("Healthy", applied.message)
