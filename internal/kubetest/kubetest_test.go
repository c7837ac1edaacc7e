package kubetest_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

func TestServer(t *testing.T) {
	s := kubetest.Shared(t)
	require.Same(t, s, kubetest.Shared(t))
	s.InstallCRDs(t)
	ns := s.Namespace(t, "kubetest")
	require.NoError(t, s.Client(t).List(t.Context(), &submarinerv1.ClusterList{}, client.InNamespace(ns)))
}

func TestStopAndRestart(t *testing.T) {
	s := kubetest.Start(t)
	gate := kubetest.NewGate(t, s)
	ns := s.Namespace(t, "kept")
	c := kubetest.Client(t, gate.Config(s.Config()))
	get := func() error {
		return c.Get(t.Context(), client.ObjectKey{Name: ns}, &corev1.Namespace{})
	}
	require.NoError(t, get())
	gate.Shut()
	require.Error(t, get())
	gate.Open(t, s)
	require.NoError(t, get())
	gate.Shut()
	s.Stop()
	s.Restart(t)
	gate.Open(t, s)
	require.NoError(t, get())
}
