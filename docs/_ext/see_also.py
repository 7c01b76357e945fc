"""Which public names belong together: each gets the others of its lines as its "See Also"."""

import importlib
import inspect

TOGETHER = """
auditing.audit auditing.audit_source auditing.Audit report.write_report
auditing.Audit auditing.Attribute auditing.Claim auditing.Estimate auditing.schema
auditing.AuditMeasure auditing.MEASURES auditing.audit
report.write_report report.render_report integrations.mlflow.log_audit
auditing.verify auditing.read_record auditing.audit
report.write_frontier report.render_frontier selection.FrontierSearch
testing.assert_gap_below auditing.audit inference.equivalence_test
report.plot_bounds report.plot_curve report.plot_frontier report.plot_history
report.plot_null report.plot_profile report.plot_transfer report.plot_curve
inference.independence_test inference.confidence_interval inference.equivalence_test inference.TestResult
inference.Interval inference.confidence_interval metrics.normalized_hsic
inference.conditional_curve inference.localized_profile report.plot_curve report.plot_profile
inference.gap_change inference.curve_change inference.confidence_interval inference.conditional_curve
auditing.compare auditing.verify auditing.read_record inference.gap_change
inference.bounds.certify inference.bounds.worst_case_head inference.bounds.TrainedOn report.plot_bounds
inference.bounds.channel_bound inference.bounds.certify dependence.RecoveredVariance
inference.bounds.linear_complexity inference.bounds.network_complexity inference.bounds.sampled_complexity
inference.bounds.uniform_bound inference.bounds.linear_complexity inference.bounds.certify
dependence.HSIC dependence.DistanceCovariance dependence.GDP dependence.EIPM dependence.Dependence
dependence.ScoreGap dependence.RankGap dependence.GDP inference.decision_gaps
table.ScoreTable table.Axis inference.confidence_interval
inference.auc_curve inference.conditional_curve report.plot_auc report.plot_error_rates auditing.audit
inference.decision_gaps inference.region_test dependence.ScoreGap report.plot_decision_gaps
dependence.KernelHGR dependence.MutualInformation dependence.Adversary dependence.HSIC
dependence.RecoveredVariance dependence.KernelHGR dependence.Adversary dependence.HSIC
dependence.BinnedMMD dependence.EIPM dependence.HSIC
kernels.Gaussian kernels.Laplace kernels.InverseMultiquadric kernels.Matern kernels.Kernel
kernels.Linear kernels.Energy kernels.Delta kernels.default_kernel
kernels.Sum kernels.Product kernels.Scaled kernels.OnColumns kernels.OnRanks
penalty.Penalty estimators.FRHSICClassifier engine.GlobalBatch engine.Training
estimators.FRHSICClassifier estimators.FRHSICRegressor estimators.FRHSICEncoder estimators.TableEncoder
estimators.fit_path selection.FrontierSearch engine.Training engine.TrainingError engine.make_net
boosting.FRHSICBoostingClassifier boosting.FRHSICBoostingRegressor boosting.lightgbm_objective
boosting.lightgbm_objective boosting.xgboost_objective boosting.FRHSICBoostingClassifier
boosting.FRHSICBoostingClassifier estimators.FRHSICClassifier repair.ScoreRepair
inference.conditional_independence_test inference.adjusted_curve inference.independence_test
inference.adjusted_curve report.plot_adjusted inference.conditional_curve
inference.carriers report.plot_carriers inference.proxies report.plot_proxies selection.retrain_without
selection.retrain_without inference.carriers boosting.FRHSICBoostingClassifier
repair.ScoreRepair repair.RepairedModel selection.FrontierSearch
selection.FrontierSearch selection.Point selection.pareto_front selection.naup selection.matched_point
selection.knee selection.lowest_dependence selection.lowest_dependence_within
selection.first_not_rejected selection.last_equivalent inference.equivalence_test
selection.best_within_limit selection.FrontierSearch selection.lowest_dependence_within
baselines.FRHSIC baselines.FREM baselines.REG_GDP baselines.REG_GDP_PROBABILITIES baselines.UNFAIR
baselines.MMD baselines.DCOR baselines.ADV baselines.LAFTR baselines.UNFAIR
baselines.Residualizer baselines.correlation_remover baselines.adversarial_fairness
metrics.generalized_demographic_parity metrics.score_gap metrics.normalized_hsic metrics.hsic metrics.eipm
metrics.distance_correlation metrics.kernel_hgr metrics.normalized_hsic
sources.open_source sources.open_sql sources.Source sources.shuffle auditing.audit_source
sources.read_table sources.write_table sources.open_source
sketching.HSICSketch sketching.FeatureHSIC runners.sketch_source auditing.audit_source
runners.Local runners.Pool runners.Ray runners.sketch_source
persistence.save persistence.load persistence.export_onnx
data.to_sensitive data.to_matrix data.to_weights data.Sensitive
datasets.fetch_adult datasets.fetch_acs_income datasets.fetch_meps datasets.fetch_crime datasets.fetch_compas
datasets.make_preprocessor datasets.paper_split datasets.fetch_adult
datasets.make_u_shaped datasets.make_variance_only datasets.make_sinusoidal datasets.make_xor
datasets.make_classification datasets.make_convergence datasets.make_scm
"""


def related(name: str) -> list[str]:
    """Return the public names beside one, given as ``package.name``."""
    lines = [line.split() for line in TOGETHER.strip().splitlines()]
    beside = [one for line in lines if name in line for one in line if one != name]
    return list(dict.fromkeys(beside))


def resolve(name: str) -> object:
    """Return the object behind ``package.name``."""
    package, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(f"frhsic.{package}"), attribute)


def section(name: str) -> list[str]:
    """Return the lines of a "See Also" section in numpydoc's form."""
    lines = ["", "See Also", "--------"]
    for other in related(name):
        doc = inspect.getdoc(resolve(other)) if callable(resolve(other)) else ""
        lines += [f"frhsic.{other} : {(doc or 'A value.').splitlines()[0]}"]
    return [*lines, ""]
