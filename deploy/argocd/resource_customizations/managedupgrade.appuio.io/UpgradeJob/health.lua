-- Healthy once the upgrade is through, or was left out on purpose. Degraded when somebody has to look.
-- Argo CD runs this without Lua's libraries: no string, no math.

local function condition(type, status)
  for _, c in ipairs((obj.status or {}).conditions or {}) do
    if c.type == type and (status == nil or c.status == status) then return c end
  end
end

local function health(status, message)
  return {status = status, message = message}
end

if obj.status == nil then
  return health("Progressing", "the operator has not looked at it yet")
end

-- Pools that stayed paused get no new certificates: said whatever the outcome.
local left = condition("PoolsLeftPaused", "True")
local and_left = left and ("; " .. left.message) or ""

local failed = condition("Failed", "True")
if failed then
  return health("Degraded", failed.reason .. ": " .. failed.message .. and_left)
end
local expired = condition("Expired", "True")
if expired then
  return health("Degraded", "not run, " .. expired.reason .. ": " .. expired.message .. and_left)
end
local succeeded = condition("Succeeded", "True")
if succeeded then
  -- Those with changes pending are unpaused by a later job.
  local is_left_to_people = left and left.reason ~= "PendingChanges"
  return health(is_left_to_people and "Degraded" or "Healthy", succeeded.reason .. ": " .. succeeded.message .. and_left)
end

local held = condition("Held", "True")
if held then
  local status = held.reason == "ClockSkew" and "Degraded" or "Suspended"
  return health(status, held.reason .. ": " .. held.message)
end
-- What is wrong with a job that has not ended yet; of the first two only one that has not begun says so.
for _, type in ipairs({"Valid", "HooksRunnable", "TemplateValid"}) do
  local wrong = condition(type, "False")
  if wrong then return health("Degraded", wrong.reason .. ": " .. wrong.message) end
end

local message = obj.status.message or "waits for its start"
if obj.status.progress ~= nil then
  message = obj.status.progress .. " steps: " .. message
end
local stalled = condition("EngineStalled", "True")
if stalled then
  message = message .. "; " .. stalled.reason .. ": " .. stalled.message
end
local phase = obj.status.phase or "Pending"
if phase == "Running" then
  return health("Progressing", message)
end
-- Pending or Paused: something outside lets it go on, its time first of all.
return health("Suspended", phase .. ": " .. message)
