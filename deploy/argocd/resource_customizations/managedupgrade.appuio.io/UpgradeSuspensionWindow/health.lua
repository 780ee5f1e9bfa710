-- Healthy when the window can be acted upon, also when it is over.
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

local function count(list, more)
  return #(list or {}) + (more or 0)
end
local configs = count(obj.status.matchingConfigs, obj.status.moreMatchingConfigs)
local jobs = count(obj.status.matchingJobs, obj.status.moreMatchingJobs)
return health("Healthy", valid.message .. "; it selects " .. configs .. " UpgradeConfigs and " .. jobs .. " UpgradeJobs")
