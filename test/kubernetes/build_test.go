package kubernetes_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	keda "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	crds "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// kinds are the objects that are shipped, by API version and kind.
func kinds() map[string]meta.Object {
	return map[string]meta.Object{
		"apps/v1 Deployment":                      &apps.Deployment{},
		"v1 ConfigMap":                            &core.ConfigMap{},
		"v1 Secret":                               &core.Secret{},
		"policy/v1 PodDisruptionBudget":           &policyv1.PodDisruptionBudget{},
		"keda.sh/v1alpha1 ScaledObject":           &keda.ScaledObject{},
		"keda.sh/v1alpha1 TriggerAuthentication":  &keda.TriggerAuthentication{},
		"monitoring.coreos.com/v1 PodMonitor":     &monitoring.PodMonitor{},
		"monitoring.coreos.com/v1 PrometheusRule": &monitoring.PrometheusRule{},
	}
}

// manifests are one overlay's objects.
type manifests struct {
	all   []meta.Object
	kinds []string
}

// build does what kustomize build does, and decodes every object.
func build(t *testing.T, dir string) manifests {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var m manifests
	for _, r := range built.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		o, err := decode(text)
		if err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		m.all, m.kinds = append(m.all, o), append(m.kinds, r.GetKind())
	}
	return m
}

func (m manifests) has(kind, name string) bool {
	for i, o := range m.all {
		if m.kinds[i] == kind && o.GetName() == name {
			return true
		}
	}
	return false
}

// one is the only object of a type.
func one[T meta.Object](t *testing.T, m manifests) T {
	t.Helper()
	var found []T
	for _, o := range m.all {
		if v, ok := o.(T); ok {
			found = append(found, v)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects of the type %T, want one", len(found), found)
	}
	return found[0]
}

// decode decodes an object into its type; a field that the type has not is an
// error. KEDA's are also held against the schema that its API server has.
func decode(text []byte) (meta.Object, error) {
	var t meta.TypeMeta
	if err := yaml.Unmarshal(text, &t); err != nil {
		return nil, err
	}
	o, ok := kinds()[t.APIVersion+" "+t.Kind]
	if !ok {
		return nil, fmt.Errorf("no such kind here: %s %s", t.APIVersion, t.Kind)
	}
	if err := yaml.UnmarshalStrict(text, o); err != nil {
		return nil, fmt.Errorf("%s: %w", t.Kind, err)
	}
	if strings.HasPrefix(t.APIVersion, "keda.sh/") {
		return o, validate(text, "keda.sh_"+strings.ToLower(t.Kind)+"s.yaml")
	}
	return o, nil
}

// validate holds an object against a schema in KEDA's module.
func validate(text []byte, file string) error {
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/kedacore/keda/v2").Output()
	if err != nil {
		return fmt.Errorf("find KEDA's module: %w", err)
	}
	definition, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(module)), "config/crd/bases", file))
	if err != nil {
		return err
	}
	var crd crds.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(definition, &crd); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	var schema apiextensions.JSONSchemaProps
	if err := crds.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &schema, nil); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	validator, _, err := validation.NewSchemaValidator(&schema)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	var object any
	if err := yaml.Unmarshal(text, &object); err != nil {
		return err
	}
	var all []error
	for _, e := range validation.ValidateCustomResource(nil, object, validator) {
		all = append(all, e)
	}
	return errors.Join(all...)
}
