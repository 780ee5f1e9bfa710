// The Linux side of process handling for argoexec.
//
// The module as it is served lacks this file and so does not compile on Linux.
// This one was written for the test cluster from what its callers need; it is
// laid over a copy of the module by tests/cluster/build.
package osspecific

import (
	"errors"
	"os"
	"syscall"

	argoerrors "github.com/argoproj/argo-workflows/v4/util/errors"
)

// Term is the signal that asks a process to end.
var Term = syscall.SIGTERM

// CanIgnoreSignal tells which signals the emissary need not pass on: that a
// child ended is its own business, and SIGURG is how the Go runtime preempts.
func CanIgnoreSignal(s os.Signal) bool {
	switch s {
	case syscall.SIGCHLD, syscall.SIGURG:
		return true
	default:
		return false
	}
}

// Kill sends a signal to the whole process group of pid, or to pid alone when
// its group can't be found.
func Kill(pid int, s syscall.Signal) error {
	target := pid
	if group, err := syscall.Getpgid(pid); err == nil {
		target = -group
	}
	return syscall.Kill(target, s)
}

// Setpgid makes the process to be started the leader of a group of its own.
func Setpgid(attributes *syscall.SysProcAttr) {
	attributes.Setpgid = true
}

// Wait reaps every child until the given process is among them, and returns
// its exit code as an error (nil for 0). As PID 1 of a container the emissary
// inherits orphans, so it must not wait for the one process alone.
func Wait(process *os.Process) error {
	pid := process.Pid
	// From here on nobody else may collect the exit status.
	if err := process.Release(); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		reaped, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return err
		case reaped != pid:
			continue
		case status.Exited():
			return argoerrors.NewExitErr(status.ExitStatus())
		case status.Signaled():
			return argoerrors.NewExitErr(128 + int(status.Signal()))
		}
	}
}
