package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/crds"
	"subctl/internal/kube"
	"subctl/internal/kubetest"
)

func strip(s *apiextensionsv1.JSONSchemaProps) {
	s.XValidations = nil
	for k, p := range s.Properties {
		strip(&p)
		s.Properties[k] = p
	}
	if s.Items != nil && s.Items.Schema != nil {
		strip(s.Items.Schema)
	}
}

func installStripped(t testing.TB, s *kubetest.Server) {
	c := s.Client(t)
	all, err := crds.SDEWAN()
	require.NoError(t, err)
	for _, crd := range all {
		strip(crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
		require.NoError(t, kube.Apply(t.Context(), c, kube.FieldOwner, crd))
	}
	for _, crd := range all {
		require.Eventually(t, func() bool {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(crd), crd); err != nil {
				return false
			}
			for _, c := range crd.Status.Conditions {
				if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
					return true
				}
			}
			return false
		}, time.Minute, 20*time.Millisecond)
	}
}
