package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/submariner/v1alpha1"
	"subctl/internal/cli"
	"subctl/internal/kube"
	"subctl/internal/words"
	"subctl/policy"
	"subctl/policy/catalog"
)

// maxPolicyFile is the size in bytes above which a file is not read: an API server would not
// accept its content.
const maxPolicyFile = 16 << 20

// readFiles returns the content of the files that -f names.
func (o *cablePolicyAdd) readFiles() (policy.Manifest, error) {
	var m policy.Manifest
	if o.name+o.left+o.right+o.driver+o.config+o.encryption != "" {
		return m, cli.UsageError(
			errors.New(
				"-f reads whole policies from a file: omit the name, --cable-driver and the other flags of a policy"),
		)
	}
	var errs []error
	contents := make([][]byte, len(o.files))
	for i, name := range o.files {
		var err error
		if slices.Contains(o.files[:i], name) {
			err = fmt.Errorf("-f %s is specified twice", name)
		} else {
			contents[i], err = o.readFile(name, "policies")
			err = cli.FileError(err)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return m, cli.UsageError(err)
	}
	return policy.Load(o.files, contents)
}

// readFile reads a file with things such as policies; "-" is stdin.
func (g *globals) readFile(name, things string) ([]byte, error) {
	in := g.In
	if name != cli.StdStream {
		file, err := os.Open(name)
		if err != nil {
			return nil, unreadableFile(things, err)
		}
		defer file.Close()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, maxPolicyFile+1))
	switch {
	case err != nil:
		return nil, unreadableFile(things, err)
	case len(data) > maxPolicyFile:
		return nil, fmt.Errorf("reading %s: %s is larger than %d MiB", things, name, maxPolicyFile>>20)
	}
	return data, nil
}

func unreadableFile(things string, err error) error {
	return fmt.Errorf("reading %s: %w: specify the path of a file that you can read, or - for stdin", things, err)
}

// supplied is a cluster with the ConfigMaps that files supply for its policies.
type supplied struct {
	client.Client
	maps map[client.ObjectKey]*corev1.ConfigMap
}

// Get implements client.Reader.
func (s supplied) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if cm, ok := obj.(*corev1.ConfigMap); ok && s.maps[key] != nil {
		s.maps[key].DeepCopyInto(cm)
		return nil
	}
	return s.Client.Get(ctx, key, obj, opts...)
}

// supply returns the cluster with the ConfigMaps of m, each in the namespaces of the policies
// that name it. It places the policies first. It returns all reasons why the cluster cannot
// have them.
func (o *cablePolicyAdd) supply(
	ctx context.Context,
	c client.Client,
	all *catalog.Catalog,
	m policy.Manifest,
) (supplied, error) {
	s := supplied{c, map[client.ObjectKey]*corev1.ConfigMap{}}
	var errs []error
	for _, p := range m.Policies {
		errs = append(errs, all.Place(p, o.set), all.CheckTaken(p, o.replace))
	}
	for _, cm := range m.ConfigMaps {
		named := false
		for _, p := range m.Policies {
			if !slices.Contains(configMapsOf(p), cm.Name) {
				continue
			}
			named = true
			if cm.Namespace != "" && cm.Namespace != p.Namespace {
				errs = append(
					errs,
					fmt.Errorf(
						"ConfigMap %s specifies namespace %s, but policy %s reads it from %s: omit the namespace",
						cm.Name, cm.Namespace, p.Name, p.Namespace),
				)
			}
			placed := cm.DeepCopy()
			placed.Namespace = p.Namespace
			s.maps[client.ObjectKeyFromObject(placed)] = placed
		}
		if !named {
			o.progress().Warn("ConfigMap %s is ignored: no policy in the files names it", cm.Name)
		}
	}
	return s, errors.Join(append(errs, o.checkSupplied(ctx, s, all, m))...)
}

// checkSupplied returns an error if ConfigMaps that exist would change without --replace, or
// with policies that are not in m. It forgets the ConfigMaps that do not change.
func (o *cablePolicyAdd) checkSupplied(ctx context.Context, s supplied, all *catalog.Catalog, m policy.Manifest) error {
	var errs []error
	for _, key := range s.keys() {
		var was corev1.ConfigMap
		err := s.Client.Get(ctx, key, &was)
		switch {
		case client.IgnoreNotFound(err) != nil:
			errs = append(errs, fmt.Errorf("reading ConfigMap %s: %w", key.Name, err))
			continue
		case err != nil: // it does not exist
			continue
		case maps.Equal(was.Data, s.maps[key].Data):
			delete(s.maps, key)
			continue
		case !o.replace:
			errs = append(
				errs,
				fmt.Errorf(
					"ConfigMap %s already exists in namespace %s, with other settings: change it with --replace, or choose another name",
					key.Name, key.Namespace),
			)
			continue
		}
		var others []string
		for _, p := range all.Policies {
			same := func(other *v1alpha1.CablePolicies) bool {
				return other.Name == p.SharedName() && other.Namespace == p.Namespace
			}
			if all.Maker(p) == all.Keeper && p.Namespace == key.Namespace &&
				slices.Contains(configMapsOf(p), key.Name) &&
				!slices.ContainsFunc(m.Policies, same) {
				others = append(others, p.Name)
			}
		}
		if len(others) > 0 {
			errs = append(
				errs,
				fmt.Errorf(
					"ConfigMap %s is also used by cable policy %s, which is not in the files: add it to them, or choose another name",
					key.Name, words.List(others)),
			)
		}
	}
	return errors.Join(errs...)
}

// keys returns the keys of the ConfigMaps, sorted.
func (s supplied) keys() []client.ObjectKey {
	return slices.SortedFunc(maps.Keys(s.maps),
		func(a, b client.ObjectKey) int { return strings.Compare(a.String(), b.String()) })
}

// objects returns the ConfigMaps.
func (s supplied) objects() []client.Object {
	var out []client.Object
	for _, key := range s.keys() {
		out = append(out, s.maps[key])
	}
	return out
}

// write creates or changes the ConfigMaps on the API server.
func (s supplied) write(ctx context.Context, g *globals) error {
	for _, key := range s.keys() {
		var was corev1.ConfigMap
		did := "changed"
		err := s.Client.Get(ctx, key, &was)
		switch {
		case err == nil:
			was.Data = s.maps[key].Data
			err = s.Update(ctx, &was, client.FieldOwner(kube.FieldOwner))
		case client.IgnoreNotFound(err) == nil:
			did = "created"
			err = s.Create(ctx, s.maps[key].DeepCopy(), client.FieldOwner(kube.FieldOwner))
		}
		if err != nil {
			return fmt.Errorf("writing ConfigMap %s: %w", key.Name, err)
		}
		g.progress().Done("%s ConfigMap %s in namespace %s", did, key.Name, key.Namespace)
	}
	return nil
}

// configMapsOf returns the names of the ConfigMaps that a policy names.
func configMapsOf(p *v1alpha1.CablePolicies) []string {
	var names []string
	for _, r := range p.ConnectionPolicies {
		if o := r.CableOptions; o != nil && o.Metadata.Name != "" {
			names = append(names, o.Metadata.Name)
		}
	}
	return names
}
