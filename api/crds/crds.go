// Package crds embeds the CustomResourceDefinitions that "make generate" generates from
// package api, and the ClusterRoles of users that belong to them. It contains no logic.
package crds

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

//go:embed *.yaml sdewan/*.yaml
var files embed.FS

// All returns the CRDs of joined clusters and brokers, sorted by file name.
func All() ([]*apiextensionsv1.CustomResourceDefinition, error) { return read("*.yaml") }

// SDEWAN returns the CRDs of SD-EWAN, sorted by file name. Neither joined clusters nor brokers hold
// them.
func SDEWAN() ([]*apiextensionsv1.CustomResourceDefinition, error) { return read("sdewan/*.yaml") }

func read(pattern string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	names, err := fs.Glob(files, pattern)
	if err != nil {
		return nil, err
	}
	var out []*apiextensionsv1.CustomResourceDefinition
	for _, name := range names {
		b, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(b, crd); err != nil {
			return nil, fmt.Errorf("reading embedded %s: %w", name, err)
		}
		out = append(out, crd)
	}
	return out, nil
}

// onlyInClusters are the plurals of the kinds that no broker holds.
var onlyInClusters = []string{"clusterglobalegressips", "globalegressips", "globalingressips"}

// Broker returns the CRDs of the kinds that a broker holds, sorted by file name.
func Broker() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	all, err := All()
	return slices.DeleteFunc(all, func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return slices.Contains(onlyInClusters, crd.Spec.Names.Plural)
	}), err
}
