//go:build linux

package kernel

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/dataplane"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
)

// inPod is the environment variable that makes the test binary do the work of an agent in the
// namespace in which it is started, with the rights with which it is started, and nothing else.
const inPod = "SUBCTL_TEST_IN_POD"

func TestMain(m *testing.M) {
	if os.Getenv(inPod) == "" {
		os.Exit(m.Run())
	}
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// everyKind holds an object of each kind, except IPsec.
func everyKind() []dataplane.Object {
	return append(one(), returnsOf(1), tableOf(someElements()), sourcesOf(cidr("10.1.0.0/16")))
}

// work opens the socket of pings, and makes the namespace hold everyKind and then nothing.
func work() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
	if err != nil {
		return fmt.Errorf("opening a socket for pings: %w", err)
	}
	defer unix.Close(s)
	owner := dataplane.GatewayOwner
	owner.Nftables = slices.Concat(owner.Nftables, dataplane.RouteOwner.Nftables)
	h, err := New(owner)
	if err != nil {
		return err
	}
	defer h.Close()
	want, err := dataplane.Of(everyKind()...)
	if err != nil {
		return err
	}
	if _, err := dataplane.Sync(context.Background(), h, want); err != nil {
		return err
	}
	if _, err := ReadFacts(); err != nil {
		return err
	}
	_, err = dataplane.Sync(context.Background(), h, nil)
	return err
}

// The rights of a pod are enough for the work of its agent, and none of its capabilities is
// superfluous: without NET_ADMIN or NET_RAW the work fails.
func TestCapabilitiesOfPods(t *testing.T) {
	nstest.Root(t)
	_, err := exec.LookPath("setpriv")
	require.NoError(t, err, "package util-linux has setpriv(1)")
	objs, err := cluster.Render(&v1alpha1.Submariner{})
	require.NoError(t, err)
	for _, obj := range objs {
		ds, ok := obj.(*appsv1.DaemonSet)
		if !ok {
			continue
		}
		rights := ds.Spec.Template.Spec.Containers[0].SecurityContext
		require.Equal(t, "[ALL]", fmt.Sprint(rights.Capabilities.Drop))
		require.False(t, *rights.AllowPrivilegeEscalation)
		var all []string
		for _, c := range rights.Capabilities.Add {
			all = append(all, strings.ToLower(string(c)))
		}
		t.Run(ds.Name, func(t *testing.T) {
			require.NoError(t, workWith(t, all))
			for i := range all {
				require.Error(t, workWith(t, slices.Delete(slices.Clone(all), i, i+1)), "%s is superfluous", all[i])
			}
		})
	}
}

// workWith does the work of an agent with some capabilities only.
func workWith(t *testing.T, capabilities []string) error {
	t.Helper()
	ns, _ := node(t, dataplane.GatewayOwner)
	bounding := "-all"
	for _, c := range capabilities {
		bounding += ",+" + c
	}
	cmd := exec.Command("setpriv", "--bounding-set="+bounding, "--inh-caps=-all", "--no-new-privs", os.Args[0])
	cmd.Env = append(os.Environ(), inPod+"=1")
	cmd.WaitDelay = 10 * time.Second // wireguard-go may outlive it
	var out []byte
	var err error
	ns.Do(func() { out, err = cmd.CombinedOutput() })
	if err != nil {
		t.Logf("with %v: %s", capabilities, out)
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
