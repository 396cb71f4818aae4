"""job.yaml to what its documents describe: a job, an array of jobs, or a service each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gantree.formats.job.alternative_rules import alternatives_of
from gantree.formats.job.form import (
    AS_WRITTEN,
    MAX_JOBS,
    SERVICE,
    AxisTrafficForm,
    CheckpointForm,
    DataForm,
    EachForm,
    JobForm,
    ModelForm,
    RestartsForm,
    RoleForm,
    TrafficForm,
)
from gantree.formats.job.notify_form import NotifyForm
from gantree.formats.job.rules import (
    after_problems,
    job_problems,
    jobs_of_arrays,
    name_problems,
    speeds_of,
)
from gantree.formats.job.service_form import ServiceForm
from gantree.formats.job.service_reader import service_of
from gantree.formats.job.service_rules import after_service_problems
from gantree.formats.job.topology_form import GangTopologyForm, SlicesForm, TopologyForm
from gantree.formats.validation.forms import MAX_PROBLEMS, empty_file, read_form, refuse
from gantree.model.arrays import element_of, indices_of
from gantree.model.errors import BadFields, Problem
from gantree.model.federation import Regions
from gantree.model.jobs import (
    AlternativeShape,
    Apart,
    AxisTraffic,
    Checkpoint,
    DataNeed,
    Elastic,
    Job,
    Near,
    Notify,
    Restarts,
    Role,
    Serving,
    Shape,
    Slices,
    Spread,
    TopologySpec,
    Traffic,
    Transformer,
    Warn,
)
from gantree.model.services import ServiceSpec
from gantree.text.document import Document, Table, read_documents
from gantree.text.objects import documents_of

MAX_JOB_FILE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Submission:
    """What a job file asks for: jobs, an array as one (`Job.array`), and services, each in the order written.

    regions are those of each service, which concern the front of a federation alone.
    """

    jobs: tuple[Job, ...] = ()
    services: tuple[ServiceSpec, ...] = ()
    regions: tuple[Regions, ...] = ()


def read_job(text: str, source: str) -> tuple[Job, ...]:
    """Read the jobs that a job file comes to, in the order written. Raises BadFields.

    The elements of an array are jobs, and so are the replicas with which a service begins, but at least one.
    """
    forms = _forms_of_text(text, source)
    refuse(list(after_problems(forms)), source)
    jobs_of_array = jobs_of_arrays(forms)
    return tuple(
        element
        for form in forms
        for element in _elements(form, _job(form, _after_elements(form.after, jobs_of_array)))
    )


def read_submission(text: str, source: str) -> Submission:
    """Read the text of a job file. Raises BadFields."""
    return _submission(_forms_of_text(text, source))


def read_submission_objects(objects: Sequence[object], source: str) -> Submission:
    """What JSON objects with the fields of a job file ask for. Raises BadFields."""
    try:
        forms = _forms(documents_of(objects, "jobs", source), source, [])
    except BadFields as error:
        raise BadFields([replace(each, line=None) for each in error.problems]) from None
    return _submission(forms)


def _submission(forms: Sequence[JobForm]) -> Submission:
    jobs, services, regions = [], [], []
    for form in forms:
        job = _job(form, form.after)
        if isinstance(form, ServiceForm):
            services.append(service_of(form, job))
            regions.append(form.regions)
        else:
            jobs.append(job)
    return Submission(tuple(jobs), tuple(services), tuple(regions))


def _forms_of_text(text: str, source: str) -> list[JobForm]:
    problems: list[Problem] = []
    documents = read_documents(text, source, problems, MAX_JOB_FILE_BYTES)
    if not documents:
        problems.append(empty_file(JobForm))
    return _forms(documents, source, problems)


def _forms(documents: list[Document], source: str, problems: list[Problem]) -> list[JobForm]:
    forms = []
    for document in documents:
        form = _form(document, problems)
        forms += [] if form is None else [form]
        if len(problems) >= MAX_PROBLEMS:
            break
    problems += [problem for form in forms for problem in job_problems(form)]
    problems += name_problems(forms, MAX_JOBS)
    problems += after_service_problems(forms)
    refuse(problems, source)
    return forms


def _form(document: Document, problems: list[Problem]) -> JobForm | None:
    """Read a document. Of one whose kind is wrong nothing else is said: which fields it may have is not known."""
    found: list[Problem] = []
    form = read_form(_kind_of(document), document, found)
    of_kind = [each for each in found if each.field == "kind"]
    problems += of_kind or found
    return None if of_kind else form


def _kind_of(document: Document) -> type[JobForm]:
    value = document.value
    return ServiceForm if isinstance(value, Table) and value.get("kind") == SERVICE else JobForm


def _after_elements(
    names: Iterable[str], jobs_of_array: Mapping[str, tuple[str, ...]]
) -> Iterator[str]:
    """Names in `after` with the name of an array in the same file as those of its elements."""
    for name in names:
        yield from jobs_of_array.get(name, (name,))


def _elements(form: JobForm, job: Job) -> Iterator[Job]:
    """The elements of an array, the replicas of a service; a job that is neither alone."""
    if isinstance(form, ServiceForm):
        topology = service_of(form, job).replica_topology
        for number in range(1, max(form.replicas.min, 1) + 1):
            yield replace(job, name=f"{job.name}.{number}", topology=topology)
        return
    if not job.array:
        yield job
    for index in indices_of(job.array):
        yield element_of(job, index)


def _job(form: JobForm, after: Iterable[str]) -> Job:
    """The job or the array of a document. after: what it comes after, by name."""
    roles = tuple(_role(role) for role in form.gang)
    serves = form.parallelism.serves
    return Job(
        name=form.name,
        roles=roles,
        queue=form.queue,
        priority=form.priority,
        topology=_topology(form.topology),
        parallelism=form.parallelism.axes(),
        elastic=Elastic(form.elastic.min, form.elastic.max) if form.elastic else None,
        checkpoint=_checkpoint(form.checkpoint) if form.checkpoint else None,
        restarts=_restarts(form.restarts),
        time_limit_s=form.time_limit,
        warn=Warn(form.warn.signal, form.warn.before) if form.warn else None,
        after=tuple(dict.fromkeys(after)),
        array=tuple((span.start, span.stop - 1) for span in form.array or ()),
        trains=transformer_of(form.model) if form.model and not serves else None,
        traffic=traffic_of(form.traffic) if form.traffic and not serves else None,
        serving=_serving(form) if serves else None,
        overlap=form.overlap.axes(),
        data=tuple(_data(need) for need in form.data),
        communicates=form.communicates,
        ranks_as_written=form.rank_order == AS_WRITTEN,
        user=form.user or "",
        preemptible=form.preemptible,
        expected_s=form.expected,
        held=form.hold,
        speeds=speeds_of(form),
        choose=form.choose,
        budget_USD=form.budget_USD,
        spot=form.spot,
        variables=form.variables,
        secrets=tuple(form.secrets.items()),
        notify=_notify(form.notify) if form.notify else None,
        check=form.check.check() if form.check else None,
        project=form.project or "",
        idle=form.idle.limits() if form.idle else None,
        alternatives=tuple(
            AlternativeShape(role.role, shape_of(each, models, role.node_labels), alternative.speed)
            for role in form.gang
            for alternative, each, models in alternatives_of(role)
        ),
    )


def _notify(form: NotifyForm) -> Notify:
    return Notify(tuple(dict.fromkeys(form.on)), form.webhook, form.mail)


def _role(form: RoleForm) -> Role:
    return Role(
        name=form.role,
        members=form.members,
        shape=shape_of(form.each, form.models(), form.node_labels),
        processes=form.processes,
        topology=_topology(form.topology),
        image=form.image,
        run=tuple(form.run),
        env=tuple(form.env.items()),
        workdir=form.workdir,
    )


def shape_of(each: EachForm, models: Sequence[str], labels: Mapping[str, str]) -> Shape:
    """What one member needs on one node, of acceptable GPU models, on nodes with these labels."""
    return Shape(
        gpus=each.gpus,
        cpus=each.cpus,
        memory_GiB=each.memory_GiB,
        nics=each.nics,
        models=tuple(models),
        labels=tuple(labels.items()),
        mig=each.profile,
        gpu_share=each.gpu_share,
        gpu_memory_GiB=each.gpu_memory_GiB,
        devices=tuple(each.devices.items()),
        isolation=each.isolation,
        neighbours=each.neighbours,
        memory_GBps=each.memory_GBps,
    )


def _topology(form: TopologyForm) -> TopologySpec:
    spread, near = form.spread, form.near if isinstance(form, GangTopologyForm) else None
    return TopologySpec(
        required=form.required,
        preferred=form.preferred,
        slices=tuple(map(_slices, form.slices)),
        spread=Spread(spread.tier, spread.at_most) if spread else None,
        apart=tuple(Apart(apart.tier, tuple(apart.jobs)) for apart in form.apart),
        box=form.box if isinstance(form, GangTopologyForm) else None,
        near=Near(near.tier, near.weights.axes()) if near else None,
    )


def _slices(form: SlicesForm) -> Slices:
    tier = form.required or form.preferred
    assert tier is not None  # `topology_rules` saw to it
    return Slices(form.members, tier, form.role, preferred=form.required is None)


def _checkpoint(form: CheckpointForm) -> Checkpoint:
    default = Checkpoint()
    grace_s = default.grace_s if form.grace is None else form.grace
    return Checkpoint(form.every, form.signal, grace_s, form.path)


def _data(form: DataForm) -> DataNeed:
    return DataNeed(form.known_as(), form.GiB or 0.0, form.path, form.version)


def _restarts(form: RestartsForm) -> Restarts:
    default = Restarts()
    backoff_s = default.backoff_s if form.backoff is None else form.backoff
    longest_s = max(default.backoff_max_s, backoff_s)
    return Restarts(
        limit=default.limit if form.limit is None else form.limit,
        backoff_s=backoff_s,
        backoff_max_s=longest_s if form.backoff_max is None else form.backoff_max,
        exit_codes=tuple(form.exit_codes),
        replace_s=form.replace_within or None,
    )


def transformer_of(form: ModelForm) -> Transformer:
    """Return the model that a job trains."""
    return Transformer(
        parameters=form.parameters,
        layers=form.layers,
        hidden=form.hidden,
        sequence=form.sequence,
        batch=form.batch,
        micro_batch=form.micro_batch,
        kv_share=(form.kv_heads / form.heads) if form.heads and form.kv_heads else 1.0,
        value_bytes=form.value_bytes,
        gradient_bytes=form.gradient_bytes,
        experts=form.experts or 0,
        experts_per_token=form.experts_per_token,
        expert_parameters=form.expert_parameters or 0.0,
        sharded=form.sharded,
        mfu=form.mfu,
        peak_TFLOPS=form.peak_TFLOPS,
    )


def traffic_of(form: TrafficForm) -> Traffic:
    """Return the traffic of a step that a job tells."""
    return Traffic(_along(form.axes()), form.compute, form.micro_batches)


def _along(forms: Iterable[tuple[str, AxisTrafficForm]]) -> tuple[AxisTraffic, ...]:
    return tuple(
        AxisTraffic(axis, traffic.bytes, traffic.calls, traffic.collective)
        for axis, traffic in forms
    )


def _serving(form: JobForm) -> Serving:
    ways, traffic = form.parallelism, form.traffic
    assert ways.prefill is not None and ways.decode is not None  # `serving_rules` saw to it
    return Serving(
        prefill=ways.prefill,
        decode=ways.decode,
        model=transformer_of(form.model) if form.model else None,
        traffic=Traffic(_along(traffic.served()), traffic.compute) if traffic else None,
    )
