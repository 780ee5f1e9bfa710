-- Healthy while runs happen as planned. Degraded when somebody has to look, also after the last upgrade failed:
-- until one succeeds, of the config or made by hand, or its UpgradeJob is deleted.
-- Argo CD runs this without Lua's libraries: no string, no math.

local function condition(type, status)
  for _, c in ipairs((obj.status or {}).conditions or {}) do
    if c.type == type and (status == nil or c.status == status) then return c end
  end
end

local function health(status, message)
  return {status = status, message = message}
end

local held = condition("Held", "True")
if held then
  local status = held.reason == "ClockSkew" and "Degraded" or "Suspended"
  return health(status, held.reason .. ": " .. held.message)
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

local missed = condition("RunMissed", "True")
if missed then
  return health("Degraded", "a run was missed, " .. missed.reason .. ": " .. missed.message)
end
local failed = condition("LastUpgradeSucceeded", "False")
if failed then
  return health("Degraded", "the last upgrade did not succeed, " .. failed.reason .. ": " .. failed.message)
end
local suspended = condition("Suspended", "True")
if suspended then
  return health("Suspended", suspended.reason .. ": " .. suspended.message)
end

local scheduled = condition("Scheduled")
if scheduled == nil then
  return health("Progressing", "the operator has not looked for the next run yet")
end
if scheduled.status == "False" then
  local status = scheduled.reason == "NeverRuns" and "Degraded" or "Progressing"
  return health(status, scheduled.reason .. ": " .. scheduled.message)
end
local message = scheduled.message
local change = condition("ChannelChangeAhead", "True")
if change then
  message = message .. "; " .. change.message
end
return health("Healthy", message)
